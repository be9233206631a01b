import { type ClientRequest, type IncomingMessage, request } from "node:http";

export interface Reply {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly bytes: Buffer;
  json<T = Record<string, unknown>>(): T;
}

export interface CallOptions {
  readonly body?: unknown;
  readonly bytes?: Buffer;
  readonly headers?: Record<string, string>;
  /** Told of the request, to cut it. */
  readonly onRequest?: (request: ClientRequest) => void;
}

/** A plain HTTP client of one socket. Rejects only when the connection breaks. */
export function createClient(socketPath: string) {
  const call = (method: string, path: string, options: CallOptions = {}): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const body = options.bytes ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
      const outgoing = request(
        { socketPath, method, path, agent: false, headers: options.headers ?? {} },
        (reply) => {
          const chunks: Buffer[] = [];
          reply.on("data", (chunk: Buffer) => chunks.push(chunk));
          reply.on("error", reject);
          reply.on("end", () => {
            const bytes = Buffer.concat(chunks);
            resolve({
              status: reply.statusCode ?? 0,
              headers: reply.headers,
              bytes,
              json: <T>() => JSON.parse(bytes.toString("utf8")) as T,
            });
          });
        },
      );
      outgoing.on("error", reject);
      options.onRequest?.(outgoing);
      outgoing.end(body);
    });
  return {
    call,
    get: (path: string) => call("GET", path),
    post: (path: string, body: unknown = {}) => call("POST", path, { body }),
    put: (path: string, body: unknown) => call("PUT", path, { body }),
    patch: (path: string, body: unknown) => call("PATCH", path, { body }),
    delete: (path: string) => call("DELETE", path),
    /** A request whose answer nobody waits for; the returned function leaves. */
    begin(path: string, body: unknown): () => void {
      const outgoing = request({ socketPath, method: "POST", path, agent: false });
      // Leaving is an error of this side alone.
      outgoing.on("error", () => outgoing.destroy());
      outgoing.end(JSON.stringify(body));
      return () => outgoing.destroy();
    },
    /** The lines of an answer that stays open, and a way to leave. */
    hold(path: string, body: unknown): Promise<{ lines: AsyncIterator<unknown>; leave: () => void }> {
      return new Promise((resolve, reject) => {
        const outgoing = request({ socketPath, method: "POST", path, agent: false }, (reply) => {
          resolve({ lines: linesOf(reply), leave: () => outgoing.destroy() });
        });
        outgoing.on("error", reject);
        outgoing.end(JSON.stringify(body));
      });
    },
  };
}
export type Client = ReturnType<typeof createClient>;

async function* linesOf(reply: IncomingMessage): AsyncGenerator<unknown> {
  let held = "";
  for await (const chunk of reply) {
    held += String(chunk);
    const parts = held.split("\n");
    held = parts.pop() ?? "";
    for (const part of parts) yield JSON.parse(part) as unknown;
  }
}
