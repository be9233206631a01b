// Tool servers behind a real rpc channel, as the aggregator and the builtin tools are.
import { duplexPair } from "node:stream";
import type { ContractParams, ContractResult, TOOL_SERVER_METHODS } from "@capsem/api";
import { Failure } from "@capsem/base";
import { RecordDecoder, withLastMember, writeRecord } from "@capsem/mcp-protocol";
import { createPeer, type Peer } from "@capsem/rpc";
import type { DuplexLike, MuxStream } from "@capsem/wire";

export type Catalog = ContractResult<typeof TOOL_SERVER_METHODS, "server.catalog">;
type Request = ContractParams<typeof TOOL_SERVER_METHODS, "server.request">;

/** One request as its server sees it. */
export interface ServedRequest extends Request {
  readonly signal: AbortSignal;
  notify(method: string, params: unknown): Promise<void>;
  /** What the client has told beside its answers: whole messages, in their order. */
  readonly told: Record<string, unknown>[];
  /** Asks the client; answers with the whole response. */
  ask(method: string, params: unknown): Promise<Record<string, unknown>>;
}
export type Serve = (
  request: ServedRequest,
) => Promise<{ result: unknown } | { error: unknown } | { raw: string }>;

export interface ScriptedServer {
  readonly era?: "legacy" | "modern";
  readonly instructions?: string;
  tools?: readonly Record<string, unknown>[];
  resources?: readonly Record<string, unknown>[];
  templates?: readonly Record<string, unknown>[];
  prompts?: readonly Record<string, unknown>[];
  /** Instead of texts made of the above. */
  rawTools?: readonly string[];
  serve?: Serve;
  /** Lists that need no look at the server are answered with these, as an aggregator has them from before. */
  remembered?: readonly Record<string, unknown>[];
  /** Before the catalogue is answered; it may throw. */
  look?: () => Promise<void>;
}

export const tool = (name: string, more: Record<string, unknown> = {}) => ({
  name,
  description: `does ${name}`,
  inputSchema: { type: "object" },
  ...more,
});

export const said = (text: string) => ({ result: { content: [{ type: "text", text }] } });

/** Answers with what it was called with. */
const echo: Serve = async ({ server, method, params }) => said(`${server} ${method} ${params}`);

/** One process of tool servers. */
export class ScriptedServers {
  readonly servers = new Map<string, ScriptedServer>();
  readonly requests: Request[] = [];
  /** Of these, whose arguments came apart. */
  largeCalls = 0;
  readonly sets: ContractParams<typeof TOOL_SERVER_METHODS, "server.set">[] = [];
  looks = 0;
  open = 0;
  /** Requests whose caller has left before their answer. */
  gone = 0;
  /** Before it is answered that its servers are known. */
  onSet: (() => Promise<void>) | undefined;
  peer: Peer | undefined;

  /** The proxy's end. */
  start(): DuplexLike {
    const [near, far] = duplexPair();
    this.over(near);
    return far;
  }

  over(duplex: DuplexLike): void {
    this.peer = createPeer({
      role: "guest",
      duplex,
      handlers: {
        "server.set": async (params) => {
          this.sets.push(params as ContractParams<typeof TOOL_SERVER_METHODS, "server.set">);
          await this.onSet?.();
          return {};
        },
        "server.catalog": async (params) => this.#catalog(params as { server: string; refresh: boolean }),
      },
      streaming: {
        "server.request": async (params, { signal }) => {
          const { arguments: large, ...others } = params as Request;
          // Large arguments come apart, and are none of it for a server.
          const request =
            large === undefined
              ? others
              : {
                  ...others,
                  params: withLastMember(others.params, "arguments", Buffer.from(large).toString()),
                };
          if (large !== undefined) this.largeCalls += 1;
          this.requests.push(request);
          return { result: {}, run: (stream) => this.#serve(request, stream, signal) };
        },
      },
      onInternalError: (_, thrown) => {
        throw thrown;
      },
    });
  }

  /** As by the death of its process. */
  kill(): void {
    this.peer?.close();
  }

  tell(method: string, params: unknown): Promise<unknown> {
    return this.peer?.call(method, params, { timeoutMs: 5_000 }) ?? Promise.reject(new Error("not started"));
  }

  async #catalog({ server: name, refresh }: { server: string; refresh: boolean }): Promise<Catalog> {
    this.looks += 1;
    const server = this.servers.get(name);
    if (server === undefined) throw new Failure("not_found", `Cannot find server "${name}"`);
    await server.look?.();
    const texts = (items: readonly unknown[] = []) => items.map((item) => JSON.stringify(item));
    return {
      ...{ name: `the ${name} server`, version: "1", protocol: "2025-11-25", era: server.era ?? "legacy" },
      ...{ capabilities: "{}", instructions: server.instructions ?? null },
      tools: [...(server.rawTools ?? texts(refresh ? server.tools : (server.remembered ?? server.tools)))],
      resources: texts(server.resources),
      templates: texts(server.templates),
      prompts: texts(server.prompts),
    };
  }

  async #serve(request: Request, stream: MuxStream, signal: AbortSignal): Promise<void> {
    this.open += 1;
    const asked = new Map<number, (response: Record<string, unknown>) => void>();
    let last = 0;
    const told: Record<string, unknown>[] = [];
    const reading = readClient(stream, asked, told);
    const gone = new AbortController();
    void stream.closed.then(() => gone.abort());
    signal.addEventListener(
      "abort",
      () => {
        gone.abort();
        this.gone += 1;
      },
      { once: true },
    );
    const served: ServedRequest = {
      ...request,
      told,
      signal: gone.signal,
      notify: (method, params) =>
        writeRecord(stream, "notification", JSON.stringify({ jsonrpc: "2.0", method, params })),
      ask: async (method, params) => {
        last += 1;
        const id = last;
        const response = new Promise<Record<string, unknown>>((resolve) => asked.set(id, resolve));
        await writeRecord(stream, "request", JSON.stringify({ jsonrpc: "2.0", id, method, params }));
        return response;
      },
    };
    try {
      const answer = await (this.servers.get(request.server)?.serve ?? echo)(served);
      if ("raw" in answer) await writeRecord(stream, "result", answer.raw);
      else if ("result" in answer) await writeRecord(stream, "result", JSON.stringify(answer.result));
      else await writeRecord(stream, "error", JSON.stringify(answer.error));
    } finally {
      this.open -= 1;
    }
    stream.end();
    await reading;
  }
}

async function readClient(
  stream: MuxStream,
  asked: Map<number, (response: Record<string, unknown>) => void>,
  told: Record<string, unknown>[],
): Promise<void> {
  const decoder = new RecordDecoder(["response", "notification"]);
  try {
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
      for (const { kind, text } of decoder.push(chunk)) {
        if (kind === "notification") {
          told.push(JSON.parse(text) as Record<string, unknown>);
          continue;
        }
        const response = JSON.parse(text) as { id: number };
        asked.get(response.id)?.(response);
      }
    }
  } catch (thrown) {
    // A caller who has left.
    if (!(thrown instanceof Failure)) throw thrown;
  }
}
