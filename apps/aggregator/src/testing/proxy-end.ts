// The proxy's end of a channel to the methods, as the proxy uses it; for tests and measurements.
import type { ContractParams, ContractResult, ProxyServer, TOOL_SERVER_METHODS } from "@capsem/api";
import { type McpRecord, readRecords, writeRecord } from "@capsem/mcp-protocol";
import { createPeer, type Peer } from "@capsem/rpc";
import { duplexPair } from "../../../../packages/rpc/src/duplex-pair.ts";
import { methodsFor } from "../methods.ts";
import { ProxyEvents } from "../proxy-events.ts";
import { Servers } from "../servers.ts";
import { type LoopbackHttp, loopbackHttp } from "./loopback-http.ts";

type Table = typeof TOOL_SERVER_METHODS;

export interface ProxyEnd {
  readonly peer: Peer;
  readonly servers: Servers;
  readonly http: LoopbackHttp;
  /** What it was told. */
  readonly told: [method: string, params: unknown][];
  readonly faults: unknown[];
  call<M extends keyof Table & string>(
    method: M,
    params: ContractParams<Table, M>,
  ): Promise<ContractResult<Table, M>>;
  set(generation: number, servers: readonly ProxyServer[]): Promise<unknown>;
  close(): Promise<void>;
}

export function proxyEnd(): ProxyEnd {
  const [near, far] = duplexPair();
  const http = loopbackHttp();
  const now = () => performance.now();
  const events = new ProxyEvents(now);
  const servers = new Servers({ http, events, now, random: () => 0.5 });
  const faults: unknown[] = [];
  const onInternalError = (_: string, thrown: unknown) => faults.push(thrown);
  const aggregator = createPeer({
    role: "guest",
    duplex: far,
    onInternalError,
    ...methodsFor(servers, events),
  });
  events.attach(aggregator);
  const told: ProxyEnd["told"] = [];
  const hear = (method: string) => async (params: unknown) => {
    told.push([method, params]);
    return {};
  };
  const methods = ["server.changed", "server.health", "server.log"];
  const handlers = Object.fromEntries(methods.map((method) => [method, hear(method)]));
  const peer = createPeer({ role: "host", duplex: near, handlers });
  return {
    ...{ peer, servers, http, told, faults },
    call: async (method, params) => (await peer.call(method, params, { timeoutMs: 20_000 })) as never,
    set: (generation, all) => peer.call("server.set", { generation, servers: all }, { timeoutMs: 20_000 }),
    async close() {
      events.close();
      await servers.close();
      peer.close();
      http.close();
    },
  };
}

export interface AskOptions {
  readonly server?: string;
  readonly method?: string;
  readonly params?: unknown;
  /** Arguments that come apart from the other params. */
  readonly argumentsText?: string;
  readonly client?: { sampling: boolean; elicitation: boolean; roots: boolean };
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** Answers requests of the server: the text of a response. */
  readonly answer?: (request: McpRecord) => string;
}

/** One `server.request`, to its end: all records. */
export async function ask(peer: Peer, options: AskOptions = {}): Promise<McpRecord[]> {
  const { client = { sampling: false, elicitation: false, roots: false }, signal, answer } = options;
  const params = {
    server: options.server ?? "one",
    method: options.method ?? "tools/call",
    params: typeof options.params === "string" ? options.params : JSON.stringify(options.params ?? {}),
    client,
    timeout_ms: options.timeoutMs ?? 10_000,
    ...(options.argumentsText === undefined ? {} : { arguments: Buffer.from(options.argumentsText) }),
  };
  const { stream } = await peer.open("server.request", params, signal === undefined ? {} : { signal });
  const records: McpRecord[] = [];
  for await (const record of readRecords(stream, ["notification", "request", "result", "error"])) {
    records.push(record);
    if (record.kind === "request" && answer !== undefined)
      await writeRecord(stream, "response", answer(record));
    if (record.kind === "result" || record.kind === "error") stream.end();
  }
  return records;
}
