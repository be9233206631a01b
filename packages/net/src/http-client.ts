import { EGRESS_METHODS } from "@capsem/api";
import { Failure, within } from "@capsem/base";
import type { OpenedCall, Peer } from "@capsem/rpc";
import type { MuxStream } from "@capsem/wire";
import { asHttpFailure, httpFailure } from "./error.ts";
import { NET_LIMITS } from "./limits.ts";

export type HttpHeader = [name: string, value: string];

export interface HttpRequest {
  /** The declared server whose request it is; null for one that rules judge by itself. */
  readonly server: string | null;
  readonly url: string;
  readonly method: string;
  readonly headers: readonly HttpHeader[];
  /** At most 16 MB. */
  readonly body?: Uint8Array | null;
  /** To the end of the answer's head; null waits as long as the answer takes. */
  readonly timeoutMs: number | null;
  readonly traceId?: string | null;
  /** Ends the request, and afterwards the body, with "cancelled". */
  readonly signal?: AbortSignal | undefined;
}

export interface HttpResponse {
  readonly status: number;
  /** Names in lower case, in the server's order; one that came twice is there twice. */
  readonly headers: readonly HttpHeader[];
  /** To be read to its end or cancelled, on every path. */
  readonly body: HttpBody;
}

/**
 * Bytes as they come, one reader. Who reads slowly slows the server down and nobody else. Leaving a `for await` early
 * cancels it.
 */
export interface HttpBody extends AsyncIterable<Uint8Array> {
  /** The next bytes, never none; null after the last. Throws "upstream_failed", "cancelled" or "egress_lost". */
  read(): Promise<Uint8Array | null>;
  /** Closes the connection to the server, unless all has come. Idempotent. */
  cancel(): void;
}

export interface HttpClientOptions {
  /** The channel to egress; one that is being replaced may be waited for. */
  readonly peer: (signal: AbortSignal | undefined) => Peer | Promise<Peer>;
}

export interface HttpClient {
  /** Follows no redirect. Throws a Failure whose kind is one of `HTTP_FAILURES`; no answer is made up for one. */
  fetch(request: HttpRequest): Promise<HttpResponse>;
}

/** Requests by way of egress, which alone dials. */
export function createHttpClient({ peer }: HttpClientOptions): HttpClient {
  return {
    async fetch(request) {
      const { timeoutMs, signal } = request;
      const bytes = request.body?.length ?? 0;
      if (bytes > NET_LIMITS.requestBodyBytesMax) {
        const limit = NET_LIMITS.requestBodyBytesMax;
        throw httpFailure("invalid_input", `Cannot send the body: ${bytes} bytes, limit ${limit}`);
      }
      const params = {
        server: request.server,
        url: request.url,
        method: request.method,
        headers: request.headers,
        body: bytes === 0 ? null : (request.body ?? null),
        timeout_ms: timeoutMs,
        trace_id: request.traceId ?? null,
      };
      let opened: OpenedCall;
      try {
        opened = await (await present(peer, signal)).open("http.fetch", params, {
          ...(timeoutMs === null ? {} : { timeoutMs: timeoutMs + NET_LIMITS.graceMs }),
          ...(signal === undefined ? {} : { signal }),
        });
      } catch (thrown) {
        throw asHttpFailure(thrown);
      }
      // All that is asked was in the call.
      opened.stream.end();
      const head = EGRESS_METHODS["http.fetch"].result.safeParse(opened.result);
      if (!head.success) {
        opened.stream.reset("protocol_error");
        throw httpFailure("upstream_failed", "Cannot fetch: egress answered in another shape");
      }
      return { ...head.data, body: new StreamBody(opened.stream, signal) };
    },
  };
}

/** A peer that is there costs no turn of the event loop. */
async function present(peer: HttpClientOptions["peer"], signal: AbortSignal | undefined): Promise<Peer> {
  const found = peer(signal);
  if (!(found instanceof Promise)) return found;
  const lost = () =>
    httpFailure("egress_lost", "Cannot fetch: the process that dials is not there", { retryable: true });
  return within(found, NET_LIMITS.peerTimeoutMs, lost, signal);
}

class StreamBody implements HttpBody {
  readonly #stream: MuxStream;
  readonly #signal: AbortSignal | undefined;
  #isOver = false;

  constructor(stream: MuxStream, signal: AbortSignal | undefined) {
    this.#stream = stream;
    this.#signal = signal;
  }

  async read(): Promise<Uint8Array | null> {
    if (this.#isOver) return null;
    try {
      const chunk = await this.#stream.read();
      if (chunk === null) this.#isOver = true;
      return chunk;
    } catch (thrown) {
      this.#isOver = true;
      throw this.#failure(thrown);
    }
  }

  cancel(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stream.reset("cancelled");
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    try {
      for (let chunk = await this.read(); chunk !== null; chunk = await this.read()) yield chunk;
    } finally {
      this.cancel();
    }
  }

  #failure(thrown: unknown): Error {
    if (!(thrown instanceof Failure) || thrown.kind !== "reset") return asHttpFailure(thrown);
    if (thrown.detail === "cancelled" || this.#signal?.aborted === true) {
      return httpFailure("cancelled", "Cannot read the answer: cancelled", { cause: this.#signal?.reason });
    }
    return httpFailure("upstream_failed", "Cannot read the answer: the server ended it before its end", {
      cause: thrown,
    });
  }
}
