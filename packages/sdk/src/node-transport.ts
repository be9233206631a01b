import type { ClientRequest, IncomingMessage } from "node:http";
import { Slots } from "@capsem/base";
import { type ClientNameOptions, named } from "./client-name.ts";
import { CapsemError, cancelled } from "./error.ts";
import { CHANGES_MAX, READS_MAX, REQUEST_TIMEOUT_MS, WAITING_MAX } from "./limits.ts";
import { sendBody } from "./node-body.ts";
import { type Dial, unixDial } from "./node-dial.ts";
import { codeOf, toNetworkError } from "./node-error.ts";
import type { RequestOptions, Transport, TransportAnswer } from "./transport.ts";

/** HTTP over the service's Unix socket. */
export function nodeTransport(socketPath: string, options: ClientNameOptions = {}): Transport {
  return named(
    httpTransport(() => unixDial(socketPath)),
    options,
  );
}

/** HTTP over what `open` dials at the first call. */
export function httpTransport(open: () => Dial | Promise<Dial>): Transport {
  let opened: Promise<Dial> | null = null;
  const dialOf = () => {
    opened ??= Promise.resolve(open());
    return opened;
  };
  const reads = new Slots(READS_MAX, WAITING_MAX);
  const changes = new Slots(CHANGES_MAX, WAITING_MAX);
  return {
    request: async (method, path, options) => {
      const dial = await dialOf();
      const slots = (options.mutates ?? true) ? changes : reads;
      const attempt = () =>
        inTurn(slots, method, path, options, () => sendRequest(dial, method, path, options));
      try {
        return await attempt();
      } catch (thrown) {
        // A kept connection that the other side had just closed: reading once more is safe.
        if (thrown instanceof StaleConnection) return await attempt();
        throw thrown;
      }
    },
    socket: async (path, protocols, options) => {
      const { openWebSocket } = await socketModule();
      return openWebSocket(await dialOf(), path, protocols, options);
    },
    close: () => {
      opened?.then(
        (dial) => dial.close(),
        () => undefined,
      );
    },
  };
}

/** Plain calls work without `ws`, so only the first stream can find that it is not there. */
async function socketModule(): Promise<typeof import("./node-socket.ts")> {
  try {
    return await import("./node-socket.ts");
  } catch (cause) {
    if (codeOf(cause) !== "ERR_MODULE_NOT_FOUND") throw cause;
    const message = 'Cannot open stream: the package "ws" is not installed (npm install ws)';
    throw new CapsemError("unavailable", message, { cause, retryable: false });
  }
}

/**
 * A crowd of calls waits here instead of at the other end, which would refuse a part of it. A place is for the time until
 * the answer's head: its body may be a stream that lasts as long as its reader likes. Waiting counts in no time limit.
 */
async function inTurn(
  slots: Slots,
  method: string,
  path: string,
  { signal }: RequestOptions,
  send: () => Promise<TransportAnswer>,
): Promise<TransportAnswer> {
  const doing = `${method} ${path}`;
  const turn = slots.take(signal);
  if (turn === null)
    throw new CapsemError("throttled", `Cannot start ${doing}: ${WAITING_MAX} other calls wait already`);
  const release = await turn.catch((thrown: unknown) => {
    throw cancelled(doing, thrown);
  });
  try {
    return await send();
  } finally {
    release();
  }
}

class StaleConnection extends CapsemError {}

function sendRequest(
  dial: Dial,
  method: string,
  path: string,
  options: RequestOptions,
): Promise<TransportAnswer> {
  const { signal, body, timeoutMs = REQUEST_TIMEOUT_MS, mutates = true } = options;
  const doing = `${method} ${path}`;
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(cancelled(doing, signal.reason));
      return;
    }
    const request = startRequest(dial, method, path, options);
    // Without a connection yet, a request that is destroyed says so only when it would have got one.
    const stop = (error: CapsemError) => {
      finish();
      request.destroy(error);
      reject(error);
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
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    };
    request.once("response", (response) => {
      clearTimeout(timer);
      response.once("close", finish);
      resolve(answerOf(request, response, mutates, dial.name));
    });
    request.once("error", (thrown) => {
      finish();
      const error = toNetworkError(thrown, mutates, dial.name);
      const stale = request.reusedSocket && !mutates && error.kind === "unavailable" && body === undefined;
      reject(stale ? new StaleConnection("unavailable", error.message, { cause: thrown }) : error);
    });
    const progressed = () => {
      clearTimeout(timer);
      if (!request.destroyed) timer = setTimeout(late, timeoutMs);
    };
    sendBody(request, body, progressed).catch((thrown: unknown) => request.destroy(asError(thrown)));
  });
}

function startRequest(
  dial: Dial,
  method: string,
  path: string,
  { query = {}, headers = {}, body, mutates = true }: RequestOptions,
): ClientRequest {
  const words = new URLSearchParams(query).toString();
  const bytes = body instanceof Uint8Array ? body.length : body instanceof Blob ? body.size : null;
  const length = bytes === null ? {} : { "content-length": String(bytes) };
  const target = dial.options(mutates);
  return dial.request({
    ...target,
    method,
    path: `${dial.prefix}${path}${words === "" ? "" : `?${words}`}`,
    headers: { ...target.headers, ...headers, ...length },
  });
}

function answerOf(
  request: ClientRequest,
  response: IncomingMessage,
  mutates: boolean,
  name: string,
): TransportAnswer {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(response.headers))
    if (value !== undefined) headers[name] = Array.isArray(value) ? value.join(", ") : value;
  // A connection that ends later reports here as well as to the reader of the body.
  request.on("error", () => undefined);
  response.on("error", () => undefined);
  return {
    status: response.statusCode ?? 0,
    headers,
    body: bodyOf(response, mutates, name),
    cancel: () => request.destroy(),
  };
}

/** An answer to a change that breaks off leaves open what it would have said: the outcome is unknown. */
async function* bodyOf(
  response: IncomingMessage,
  mutates: boolean,
  name: string,
): AsyncGenerator<Uint8Array> {
  try {
    for await (const part of response) yield part as Uint8Array;
  } catch (thrown) {
    throw thrown instanceof CapsemError ? thrown : toNetworkError(thrown, mutates, name);
  }
}

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new CapsemError("internal", "Cannot send body: unexpected error");
}
