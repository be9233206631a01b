import { CapsemError, type Client } from "@capsem/sdk";
import type { Args } from "../args.ts";
import { givenArguments, needsSchema, typedArguments } from "../call-arguments.ts";
import { usageError } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { EVENT_TEXT_BYTES_MAX } from "../limits.ts";
import type { GivenEvent } from "../rule-event.ts";
import { readText } from "../text-input.ts";
import { resultLines } from "../tool-result-text.ts";
import { findVm } from "../vm-name.ts";

const BUILTIN_SERVER = "local";

export const call: Handler = async (context, args) => {
  const { output, json } = context;
  const [server, tool] = [args.word(0), args.word(1)];
  const argumentsFor = await argumentsOf(context, args);
  const client = await context.client();
  const given = await argumentsFor(client, { server, tool });
  const vmWord = args.text("vm");
  const vmId = vmWord === undefined ? undefined : (await findVm(context, vmWord)).id;
  const request = {
    ...{ server_id: server, tool_id: tool, arguments: given },
    ...(vmId === undefined ? {} : { vm_id: vmId }),
  };
  let answer: Awaited<ReturnType<Client["mcp"]["call"]>>;
  try {
    answer = await client.mcp.call(request);
  } catch (thrown) {
    if (thrown instanceof CapsemError && thrown.kind === "policy")
      context.tried.event = await eventOf(client, { server, tool, given });
    throw thrown;
  }
  if (json) await output.json(answer);
  else {
    for (const line of resultLines(answer.result)) await output.line(line);
    if (answer.is_error) await output.say(`${server} ${tool} says that it failed`);
  }
  return answer.is_error ? 1 : 0;
};

/** As rules saw it; what is known of its definition was as true a moment ago. */
async function eventOf(
  { mcp }: Client,
  asked: Called & { readonly given: Record<string, unknown> },
): Promise<GivenEvent> {
  const tools = await mcp.tools(asked.server).catch(() => []);
  const pin = tools.find(({ name }) => name === asked.tool)?.pin ?? "pinned";
  return {
    type: "mcp.tool_call",
    fields: {
      "mcp.method": "tools/call",
      "mcp.transport": "direct",
      "mcp.server.name": asked.server,
      "mcp.server.external": asked.server !== BUILTIN_SERVER,
      "mcp.server.pinned": pin === "pinned",
      "mcp.tool_call.name": asked.tool,
      "mcp.request.arguments": asked.given,
    },
  };
}

interface Called {
  readonly server: string;
  readonly tool: string;
}
type ArgumentsFor = (client: Client, called: Called) => Promise<Record<string, unknown>>;

/** What was typed is checked at once; what a tool takes is known only with its server. */
async function argumentsOf({ powers }: Context, args: Args): Promise<ArgumentsFor> {
  const whole = args.text("json-args");
  const single = args.all("arg");
  if (whole === undefined) {
    const given = givenArguments(single);
    return async (client, called) =>
      typedArguments(given, needsSchema(given) ? await definitionOf(client, called) : undefined);
  }
  if (single.length > 0) throw usageError("Cannot use --arg with --json-args: give one of them");
  const value = parseObject(whole === "-" ? await readText(powers, "-", EVENT_TEXT_BYTES_MAX) : whole);
  return async () => value;
}

/** As it was last seen. Where nothing is known of it, the call itself says what is wrong. */
async function definitionOf({ mcp }: Client, { server, tool }: Called): Promise<unknown> {
  const tools = await mcp.tools(server).catch(() => []);
  return tools.find(({ name }) => name === tool)?.definition;
}

function parseObject(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw usageError(
      `Cannot use --json-args: it is not JSON (${cause instanceof Error ? cause.message : ""})`,
    );
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw usageError('Cannot use --json-args: an object is needed, such as {"text": "hello"}');
}
