import { messageOf } from "@capsem/base";
import { bytesOfStream, collect } from "./byte-source.ts";
import { CapsemError, cancelled } from "./error.ts";
import type { GatewayUrl } from "./gateway-url.ts";
import { COLLECTED_BYTES_MAX, REQUEST_TIMEOUT_MS } from "./limits.ts";
import type { ByteSource, RequestOptions, Transport, TransportAnswer } from "./transport.ts";
import { openNativeSocket, type WebSocketClass } from "./web-socket.ts";

export interface FetchTransportOptions {
  readonly fetch: typeof fetch;
  readonly webSocket: WebSocketClass | undefined;
  /** Whether a request's body may be a stream; where not, a stream is collected up to a limit. */
  readonly streamsUploads: boolean;
}

/** HTTP over `fetch` and the runtime's WebSocket, without a token. */
export function fetchTransport(address: GatewayUrl, options: FetchTransportOptions): Transport {
  return {
    request: (method, path, request) => sendRequest(address, options, method, path, request),
    socket: (path, protocols, socket) =>
      openNativeSocket(options.webSocket, `${address.webSocket}${path}`, protocols, socket),
    close: () => undefined,
  };
}

async function sendRequest(
  address: GatewayUrl,
  { fetch, streamsUploads }: FetchTransportOptions,
  method: string,
  path: string,
  options: RequestOptions,
): Promise<TransportAnswer> {
  const { signal, query = {}, timeoutMs = REQUEST_TIMEOUT_MS, mutates = true } = options;
  const doing = `${method} ${path}`;
  if (signal?.aborted) throw cancelled(doing, signal.reason);
  const call = createCall(doing, address.http, mutates, timeoutMs, signal);
  try {
    const words = new URLSearchParams(query).toString();
    const init: RequestInit & { readonly cache: "no-store" } = {
      method,
      headers: { ...options.headers },
      ...(await bodyOf(options.body, streamsUploads, call)),
      signal: call.abort.signal,
      // The token goes to the address that was given and nowhere else, and no cookie goes along.
      redirect: "error",
      credentials: "omit",
      cache: "no-store",
      referrerPolicy: "no-referrer",
    };
    const response = await fetch(`${address.http}${path}${words === "" ? "" : `?${words}`}`, init);
    call.answered();
    return answerOf(response, call);
  } catch (thrown) {
    call.finish();
    throw call.errorOf(thrown);
  }
}

interface Call {
  readonly abort: AbortController;
  /** The wait for the answer starts again. */
  progressed(): void;
  answered(): void;
  /** Nothing aborts it any more. */
  finish(): void;
  errorOf(thrown: unknown): CapsemError;
  /** A source of the caller that failed: its own error is what the caller gets. */
  sourceFailed(thrown: unknown): void;
}

function createCall(
  doing: string,
  name: string,
  mutates: boolean,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Call {
  const abort = new AbortController();
  let failure: unknown = null;
  let isAnswered = false;
  const stop = (error: unknown) => {
    failure ??= error;
    abort.abort();
  };
  const late = () =>
    stop(
      new CapsemError("timeout", `Cannot finish ${doing}: no answer within ${timeoutMs} ms`, {
        outcome: mutates ? "unknown" : "none",
      }),
    );
  let timer = setTimeout(late, timeoutMs);
  const onAbort = () => stop(cancelled(doing, signal?.reason));
  signal?.addEventListener("abort", onAbort, { once: true });
  return {
    abort,
    progressed: () => {
      clearTimeout(timer);
      if (!isAnswered) timer = setTimeout(late, timeoutMs);
    },
    answered: () => {
      isAnswered = true;
      clearTimeout(timer);
    },
    finish: () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    },
    errorOf: (thrown) => (failure ?? toFetchError(thrown, name, mutates && !isAnswered)) as CapsemError,
    sourceFailed: stop,
  };
}

type Init = Pick<RequestInit, "body"> & { duplex?: "half" };

async function bodyOf(body: ByteSource | undefined, streams: boolean, call: Call): Promise<Init> {
  if (body === undefined) return {};
  if (body instanceof Uint8Array) return { body: body as Uint8Array<ArrayBuffer> };
  if (body instanceof Blob) return { body };
  const watched = watch(body, call);
  if (!streams) {
    const bytes = await collect(watched, COLLECTED_BYTES_MAX, "send a stream from here");
    return { body: new Blob([bytes as Uint8Array<ArrayBuffer>]) };
  }
  const stream = new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        const next = await watched.next();
        if (next.done === true) controller.close();
        else controller.enqueue(next.value);
      },
      cancel: async () => {
        await watched.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
  return { body: stream, duplex: "half" };
}

async function* watch(body: AsyncIterable<Uint8Array>, call: Call): AsyncGenerator<Uint8Array> {
  const source = body[Symbol.asyncIterator]();
  let finished = false;
  try {
    for (;;) {
      const next = await source.next();
      call.progressed();
      if (next.done === true) {
        finished = true;
        return;
      }
      yield next.value;
    }
  } catch (thrown) {
    finished = true;
    call.sourceFailed(thrown);
    throw thrown;
  } finally {
    if (!finished) await source.return?.();
  }
}

function answerOf(response: Response, call: Call): TransportAnswer {
  return {
    status: response.status,
    headers: Object.fromEntries(response.headers),
    body: readBody(response, call),
    cancel: () => {
      call.finish();
      call.abort.abort();
    },
  };
}

async function* readBody(response: Response, call: Call): AsyncGenerator<Uint8Array> {
  try {
    if (response.body !== null) yield* bytesOfStream(response.body);
  } catch (thrown) {
    throw call.errorOf(thrown);
  } finally {
    call.finish();
  }
}

/** Nobody listens: certainly not carried out. Browsers do not say. */
const NOT_CONNECTED = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "ConnectionRefused"]);

function toFetchError(thrown: unknown, name: string, mutates: boolean): CapsemError {
  if (thrown instanceof CapsemError) return thrown;
  const code = codeOf(thrown) ?? codeOf(thrown instanceof Error ? thrown.cause : null);
  const text = code ?? messageOf(thrown);
  if (!mutates || (code !== null && NOT_CONNECTED.has(code)))
    return new CapsemError("unavailable", `Cannot reach ${name}: ${text}`, { cause: thrown });
  return new CapsemError(
    "unavailable",
    `Cannot finish request: the connection was lost (${text}), whether it was carried out is unknown`,
    { cause: thrown, retryable: false, outcome: "unknown" },
  );
}

function codeOf(thrown: unknown): string | null {
  return thrown instanceof Error && "code" in thrown && typeof thrown.code === "string" ? thrown.code : null;
}
