// Requests by node:http itself, in the place of the process that dials; for tests and measurements.
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { Failure } from "@capsem/base";
import type { HttpBody, HttpClient, HttpHeader, HttpRequest, HttpResponse } from "@capsem/net";

export interface LoopbackHttp extends HttpClient {
  /** All that was asked for. */
  readonly requests: {
    readonly method: string;
    readonly url: string;
    readonly headers: readonly HttpHeader[];
  }[];
  /** Exchanges whose body is not over. */
  readonly openCount: number;
  close(): void;
}

export function loopbackHttp(): LoopbackHttp {
  const agent = new Agent({ keepAlive: true, maxSockets: 512 });
  const requests: LoopbackHttp["requests"] = [];
  const open = new Set<object>();
  return {
    requests,
    get openCount() {
      return open.size;
    },
    fetch(asked) {
      requests.push({ method: asked.method, url: asked.url, headers: asked.headers });
      return exchange(asked, agent, open);
    },
    close: () => agent.destroy(),
  };
}

function exchange(asked: HttpRequest, agent: Agent, open: Set<object>): Promise<HttpResponse> {
  const { url, method, headers, body, timeoutMs, signal } = asked;
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(new Failure("cancelled", "Cannot fetch: cancelled"));
    const outgoing = httpRequest(url, { method, agent });
    open.add(outgoing);
    const done = () => {
      open.delete(outgoing);
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    };
    const onAbort = () => {
      outgoing.destroy();
      done();
      reject(new Failure("cancelled", "Cannot fetch: cancelled"));
    };
    const late = () => {
      outgoing.destroy();
      done();
      reject(new Failure("timeout", `Cannot fetch: no answer within ${timeoutMs} ms`));
    };
    const timer = timeoutMs === null ? undefined : setTimeout(late, timeoutMs);
    signal?.addEventListener("abort", onAbort, { once: true });
    for (const [name, value] of headers) outgoing.setHeader(name, value);
    if (body !== undefined && body !== null) outgoing.setHeader("content-length", body.length);
    outgoing.on("error", (cause: NodeJS.ErrnoException) => {
      done();
      const kind = cause.code === "ECONNREFUSED" ? "connect_failed" : "upstream_failed";
      reject(new Failure(kind, `Cannot fetch: ${cause.code ?? cause.message}`));
    });
    outgoing.on("response", (incoming) => {
      clearTimeout(timer);
      resolve({
        status: incoming.statusCode ?? 0,
        headers: headersOf(incoming),
        body: bodyOf(incoming, done),
      });
    });
    outgoing.end(body ?? undefined);
  });
}

function headersOf({ rawHeaders }: IncomingMessage): HttpHeader[] {
  const headers: HttpHeader[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    headers.push([(rawHeaders[at] ?? "").toLowerCase(), rawHeaders[at + 1] ?? ""]);
  }
  return headers;
}

function bodyOf(incoming: IncomingMessage, done: () => void): HttpBody {
  const chunks = incoming[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
  let isOver = false;
  incoming.on("close", done);
  const end = () => {
    isOver = true;
    done();
  };
  return {
    async read() {
      if (isOver) return null;
      try {
        const { done: isEnd, value } = await chunks.next();
        if (isEnd !== true) return value;
        end();
        return null;
      } catch (cause) {
        const wasOver = isOver;
        end();
        const kind = wasOver ? "cancelled" : "upstream_failed";
        throw new Failure(kind, "Cannot read the answer: the server ended it before its end", { cause });
      }
    },
    cancel() {
      if (isOver) return;
      end();
      incoming.destroy();
    },
    async *[Symbol.asyncIterator]() {
      for (let chunk = await this.read(); chunk !== null; chunk = await this.read()) yield chunk;
    },
  };
}
