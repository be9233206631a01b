import type { McpServerFields, McpServerInfo } from "@capsem/api";
import type { Args } from "../args.ts";
import { usageError } from "../cli-error.ts";
import type { Context, Handler } from "../context.ts";
import { isWaiting, toolTable, waitingText } from "../mcp-text.ts";
import { type Color, paintOf } from "../paint.ts";
import { type Cell, counted, renderLocal, renderPairs, renderTable } from "../render.ts";
import { refOfCredential } from "./credentials.ts";

export const info: Handler = async ({ client, output, json }) => {
  const found = await (await client()).mcp.info();
  if (json) await output.json(found);
  else {
    const { servers, enabled, failed, tools, quarantined, default_permission, guest, protocols } = found;
    const waiting = quarantined === 0 ? "" : `, ${quarantined} wait for approval`;
    const proxies = found.proxies.map(({ scope, calls }) => `${scope} (${counted(calls, "call")})`);
    await output.print(
      renderPairs([
        ["servers", `${servers}, ${enabled} enabled${failed === 0 ? "" : `, ${failed} failed`}`],
        ["tools", `${tools}${waiting}`],
        ["default", usualText(default_permission)],
        ["in a VM", `${guest.stdio} (stdio), ${guest.http}`],
        ["protocols", protocols.join(", ")],
        ["proxies", proxies.length === 0 ? "none runs" : proxies.join(", ")],
      ]),
    );
  }
  return 0;
};

/** What stands for all tools of which no rule speaks. */
export function usualText(permission: string): string {
  return permission === "default" ? "not set: the preset decides" : permission;
}

const STATE_COLORS: Readonly<Record<McpServerInfo["state"], Color | null>> = {
  unseen: "dim",
  idle: null,
  connecting: "yellow",
  ok: "green",
  failed: "red",
  disabled: "dim",
};

export const list: Handler = async ({ client, output, powers, json }, args) => {
  const servers = await (await client()).mcp.servers();
  if (json) await output.json({ servers });
  else if (args.flag("names")) await output.print(servers.map(({ name }) => `${name}\n`).join(""));
  else {
    const rows = servers.map((server): Cell[] => [
      server.name,
      { text: server.state, color: STATE_COLORS[server.state] },
      server.quarantined === 0 ? String(server.tools) : `${server.tools} (${server.quarantined} waiting)`,
      server.source,
      renderLocal(server.last_seen_at),
      server.url ?? "built in",
    ]);
    const head = ["NAME", "STATE", "TOOLS", "SOURCE", "LAST SEEN", "ADDRESS"];
    await output.print(renderTable(head, rows, powers.stdout.size()?.cols, paintOf(powers), ["ADDRESS"]));
    for (const { name, error } of servers) if (error !== null) await output.say(`${name}: ${error}`);
    for (const { name, quarantined } of servers)
      if (quarantined > 0) await output.say(`${name}: ${waitingText(name, quarantined)}`);
  }
  return 0;
};

export const add: Handler = async (context, args) => {
  const name = args.word(0);
  const fields = fieldsOf(args);
  const headers = await headersOf(context, args);
  const declared = headers === undefined ? fields : { ...fields, headers };
  const server = await (await context.client()).mcp.putServer(name, declared);
  if (context.json) await context.output.json(server);
  else {
    const off = server.enabled ? "" : ", and is off";
    await context.output.line(`${server.name} is declared at ${server.url}${off}`);
    if (server.enabled) await context.output.say(`look at its tools: capsem mcp refresh ${server.name}`);
  }
  return 0;
};

function fieldsOf(args: Args): McpServerFields {
  const transport = args.choice("transport", ["auto", "http", "sse"]);
  const protocol = args.choice("protocol", ["auto", "legacy", "modern"]);
  const timeoutSecs = args.number("timeout-secs", 1, 300, 1);
  const grants = [...args.all("grant")];
  return {
    url: args.word(1),
    ...(transport === undefined ? {} : { transport }),
    ...(protocol === undefined ? {} : { protocol }),
    ...(args.flag("disabled") ? { enabled: false } : {}),
    ...(grants.length === 0 ? {} : { grants }),
    ...(timeoutSecs === undefined ? {} : { timeout_secs: timeoutSecs }),
  };
}

/** Headers that hold a secret with nearly everybody. */
const SECRET_HEADER = /^(?:proxy-)?authorization$|^cookie$|(?:^|-)(?:api-?)?(?:key|token|secret)$/i;
const CREDENTIAL = /credential:(?!blake3:)([a-z][a-z0-9_-]{0,62})/g;

/** With references in the place of names of credentials. */
async function headersOf(context: Context, args: Args): Promise<Record<string, string> | undefined> {
  const headers = new Map<string, string>();
  for (const word of args.all("header")) {
    const equals = word.indexOf("=");
    if (equals <= 0) throw usageError("Cannot use --header: K=V is needed");
    const [key, value] = [word.slice(0, equals).trim(), word.slice(equals + 1)];
    if (headers.has(key)) throw usageError(`Cannot use --header ${key} twice`);
    if (SECRET_HEADER.test(key) && !value.includes("credential:")) throw usageError(secretText(key));
    headers.set(key, await withReferences(context, value));
  }
  return headers.size === 0 ? undefined : Object.fromEntries(headers);
}

/** What was given is not said again. */
function secretText(key: string): string {
  const how = `capsem credentials inject NAME --host HOST, then --header '${key}=Bearer credential:NAME'`;
  return `Cannot take a secret for ${key} from the command line, where others on this machine can read it: ${how}`;
}

async function withReferences({ client }: Context, value: string): Promise<string> {
  let text = value;
  for (const [whole, name = ""] of value.matchAll(CREDENTIAL))
    text = text.replace(whole, await refOfCredential(await client(), name));
  return text;
}

export const remove: Handler = async ({ client, output, json }, args) => {
  const name = args.word(0);
  const changed = await (await client()).mcp.deleteServer(name);
  await (json ? output.json(changed) : output.line(`${name} is forgotten`));
  return 0;
};

export const refresh: Handler = async ({ client, output, powers, json }, args) => {
  const name = args.word(0);
  const tools = await (await client()).mcp.refresh(name);
  if (json) await output.json({ server_id: name, tools });
  else {
    if (tools.length === 0) await output.say(`${name} has no tools`);
    else await output.print(toolTable(tools, powers));
    const waiting = tools.filter(isWaiting).length;
    if (waiting > 0) await output.say(waitingText(name, waiting));
  }
  return 0;
};
