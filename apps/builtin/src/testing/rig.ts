// The tools behind their real channels: a caller where the proxy is, requests that go out where egress is.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { readRecords } from "@capsem/mcp-protocol";
import { createHttpClient, type HttpCall, httpMethods } from "@capsem/net";
import { createPeer, type Peer } from "@capsem/rpc";
import { onTestFinished } from "vitest";
import { duplexPair } from "../../../../packages/rpc/src/duplex-pair.ts";
import { builtinMethods } from "../methods.ts";
import { PagePool, type PagePoolOptions } from "../page-pool.ts";
import { dial } from "./dial.ts";
import { programText } from "./program.ts";

export interface ToolResult {
  readonly content: readonly {
    type: string;
    text: string;
    data?: string;
    mimeType?: string;
    resource?: object;
  }[];
  readonly structuredContent: Readonly<Record<string, unknown>>;
  readonly isError?: boolean;
  readonly _meta?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

export interface Rig {
  readonly peer: Peer;
  readonly pages: PagePool;
  /** What went to egress. */
  readonly calls: HttpCall[];
  /** What was thrown that is no Failure. */
  readonly faults: string[];
  call(
    tool: string,
    args: object,
    options?: { timeoutMs?: number; signal?: AbortSignal },
  ): Promise<ToolResult>;
  request(
    method: string,
    params: object,
    options?: { timeoutMs?: number; signal?: AbortSignal },
  ): Promise<{ kind: string; text: string }>;
}

export function startRig(poolOptions: Partial<PagePoolOptions> = {}): Rig {
  const [proxyEnd, callerEnd] = duplexPair();
  const [nearEnd, farEnd] = duplexPair();
  const calls: HttpCall[] = [];
  const faults: string[] = [];
  const serve: typeof dial = (call, signal) => {
    calls.push(call);
    return dial(call, signal);
  };
  const egress = createPeer({ role: "guest", duplex: farEnd, streaming: httpMethods(serve) });
  const near = createPeer({ role: "host", duplex: nearEnd });
  const pages = new PagePool({ program: programText(), ...poolOptions });
  const methods = builtinMethods({
    version: "1",
    pages,
    http: createHttpClient({ peer: () => near }),
    reader: { unzstd: (body, signal) => pages.run("unzstd", { body }, signal) },
    log: (message, thrown) => faults.push(`${message}: ${String(thrown)}`),
  });
  const builtin = createPeer({ role: "guest", duplex: proxyEnd, ...methods });
  const peer = createPeer({ role: "host", duplex: callerEnd });
  onTestFinished(async () => {
    for (const each of [peer, builtin, near, egress]) each.close();
    await pages.close();
  });
  const request: Rig["request"] = async (method, params, { timeoutMs = 30_000, signal } = {}) => {
    const { stream } = await peer.open(
      "server.request",
      {
        ...{ server: "local", method, params: JSON.stringify(params), timeout_ms: timeoutMs },
        client: { sampling: false, elicitation: false, roots: false },
      },
      { timeoutMs: 10_000, ...(signal === undefined ? {} : { signal }) },
    );
    stream.end();
    const records = [];
    for await (const record of readRecords(stream, ["result", "error"])) records.push(record);
    const [record] = records;
    if (record === undefined || records.length > 1) throw new Error(`${records.length} records came`);
    return record;
  };
  return {
    peer,
    pages,
    calls,
    faults,
    request,
    async call(name, args, options) {
      const { kind, text } = await request("tools/call", { name, arguments: args }, options);
      if (kind !== "result") throw new Error(text);
      return JSON.parse(text) as ToolResult;
    },
  };
}

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** A web server by paths; others are 404. Its address without a slash at the end. */
export async function startWeb(
  pages: Readonly<Record<string, Answer>>,
): Promise<{ url: string; server: Server; seen: IncomingMessage[] }> {
  const seen: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    seen.push(request);
    response.on("error", () => undefined);
    const answer = pages[(request.url ?? "").split("?")[0] ?? ""];
    if (answer === undefined)
      response.writeHead(404, { "content-type": "text/plain" }).end("there is nothing");
    else answer(request, response);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", () => done()));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server, seen };
}

/** An answer of one body. */
export function page(
  type: string | null,
  body: string | Uint8Array,
  headers: Record<string, string> = {},
): Answer {
  return (_, response) => {
    response.writeHead(200, { ...(type === null ? {} : { "content-type": type }), ...headers });
    response.end(body);
  };
}
