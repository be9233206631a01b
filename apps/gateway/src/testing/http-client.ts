import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  /** The kind of its error object. */
  readonly kind: string | undefined;
}

export interface CallOptions {
  readonly body?: string | Buffer;
  readonly headers?: Record<string, string | string[]>;
}

/** A plain client of 127.0.0.1:port. Rejects only when the connection breaks. */
export function httpClient(port: number, token: string | null) {
  const begin = (method: string, path: string, options: CallOptions = {}): ClientRequest =>
    request({
      host: "127.0.0.1",
      port,
      method,
      path,
      agent: false,
      headers: { ...(token === null ? {} : { authorization: `Bearer ${token}` }), ...options.headers },
    });
  const call = async (method: string, path: string, options: CallOptions = {}): Promise<Reply> => {
    const outgoing = begin(method, path, options);
    outgoing.end(options.body);
    return readReply(await answerOf(outgoing));
  };
  return {
    begin,
    call,
    get: (path: string, headers: CallOptions["headers"] = {}) => call("GET", path, { headers }),
  };
}
export type HttpClient = ReturnType<typeof httpClient>;

export function answerOf(outgoing: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    outgoing.once("response", resolve).on("error", reject);
  });
}

/** Rejects when the answer is cut. */
export async function readReply(answer: IncomingMessage): Promise<Reply> {
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk as Buffer);
  const bytes = Buffer.concat(chunks);
  return { status: answer.statusCode ?? 0, headers: answer.headers, bytes, kind: kindOf(bytes) };
}

function kindOf(bytes: Buffer): string | undefined {
  try {
    return (JSON.parse(bytes.toString()) as { error?: { kind?: string } }).error?.kind;
  } catch {
    return undefined;
  }
}
