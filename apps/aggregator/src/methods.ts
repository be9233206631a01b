import { type ContractParams, TOOL_SERVER_METHODS } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { Handler, RpcContext, StreamAnswer, StreamHandler } from "@capsem/rpc";
import type { MuxStream } from "@capsem/wire";
import type * as z from "zod";
import { UPSTREAM_LIMITS } from "./limits.ts";
import type { ProxyEvents } from "./proxy-events.ts";
import { failureText, RecordsOut, readClient } from "./records.ts";
import type { Servers } from "./servers.ts";
import { type CallRequest, isNews } from "./upstream/open-call.ts";
import type { StartedCall } from "./upstream/upstream.ts";

export interface ProxyMethods {
  readonly handlers: Readonly<Record<string, Handler>>;
  readonly streaming: Readonly<Record<string, StreamHandler>>;
}

/** What a proxy may ask. */
export function methodsFor(servers: Servers, events: Pick<ProxyEvents, "keep">): ProxyMethods {
  return {
    handlers: {
      "server.set": async (raw) => {
        const { generation, servers: all } = checked(
          "server.set",
          TOOL_SERVER_METHODS["server.set"].params,
          raw,
        );
        servers.set(generation, all);
        events.keep(new Set(all.map(({ name }) => name)));
        return {};
      },
      "server.catalog": async (raw, { signal }) => {
        const params = checked("server.catalog", TOOL_SERVER_METHODS["server.catalog"].params, raw);
        return servers.get(params.server).catalog(params.refresh, signal);
      },
    },
    streaming: { "server.request": (raw, context) => request(servers, raw, context) },
  };
}

async function request(servers: Servers, raw: unknown, { signal }: RpcContext): Promise<StreamAnswer> {
  const { server, ...asked } = parseRequest(raw);
  const records = new RecordsOut();
  signal.addEventListener("abort", () => records.detach(), { once: true });
  const call = servers.get(server).start(asked, records, signal);
  await Promise.race([call.outcome, records.first]);
  return { result: {}, run: (stream) => carry(stream, records, call) };
}

async function carry(stream: MuxStream, records: RecordsOut, call: StartedCall): Promise<void> {
  records.attach(stream);
  const said = readClient(stream, call);
  try {
    const answer = await call.outcome;
    if (answer.bytes === undefined) await records.write(answer.kind, answer.text);
    else await records.writeBytes(answer.kind, answer.bytes);
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    // Cancelled: nobody reads any more.
    if (thrown.kind !== "cancelled") await records.write("error", failureText(thrown));
  }
  stream.end();
  await said;
}

type RequestParams = ContractParams<typeof TOOL_SERVER_METHODS, "server.request">;

/** By hand: it is on the way of each call. */
function parseRequest(raw: unknown): CallRequest & { readonly server: string } {
  const asked = (raw ?? {}) as Partial<RequestParams>;
  const { server, method, params, client, timeout_ms: timeoutMs, arguments: argumentsBytes } = asked;
  const isCall =
    typeof server === "string" &&
    typeof method === "string" &&
    typeof params === "string" &&
    typeof client === "object" &&
    client !== null &&
    (argumentsBytes === undefined || (argumentsBytes instanceof Uint8Array && params.endsWith("}"))) &&
    typeof timeoutMs === "number" &&
    timeoutMs > 0 &&
    timeoutMs <= UPSTREAM_LIMITS.callTimeoutMsMax;
  if (!isCall)
    throw new Failure("invalid_input", "Cannot call server.request: its params have another shape");
  if (!isRequestable(method)) {
    throw new Failure(
      "invalid_input",
      `Cannot ask a server for ${method.slice(0, 64)}: that is the aggregator's`,
    );
  }
  const { sampling, elicitation, roots } = client;
  return {
    ...{ server, method, timeoutMs },
    paramsText: params === "" ? undefined : params,
    ...(argumentsBytes === undefined ? {} : { argumentsBytes }),
    client: { sampling: sampling === true, elicitation: elicitation === true, roots: roots === true },
  };
}

/** A session's own business is not asked for from outside. */
const OWN: ReadonlySet<string> = new Set(["initialize", "server/discover", "subscriptions/listen"]);

function isRequestable(method: string): boolean {
  const isName = /^[\x21-\x7e]+$/.test(method) && method.length <= UPSTREAM_LIMITS.methodCharactersMax;
  return isName && !OWN.has(method) && (!method.startsWith("notifications/") || isNews(method));
}

function checked<T>(method: string, schema: z.ZodType<T>, raw: unknown): T {
  const parsed = schema.safeParse(raw);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const where = issue === undefined ? "" : `${issue.path.join(".")} ${issue.message}`;
  throw new Failure("invalid_input", `Cannot call ${method}: ${where.trim()}`);
}
