import { Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { CapsemError, cancelled } from "./error.ts";
import { REQUEST_TIMEOUT_MS } from "./limits.ts";
import { connectUnix } from "./node-connect.ts";
import { toNetworkError } from "./node-error.ts";
import type { ByteSource, RequestOptions, Transport, TransportAnswer } from "./transport.ts";

const KEPT_CONNECTIONS_MAX = 4;

/** HTTP over a Unix socket. Reads share kept connections; each mutation has one of its own. */
export function nodeTransport(socketPath: string): Transport {
  const agent = new Agent({ keepAlive: true, maxFreeSockets: KEPT_CONNECTIONS_MAX });
  agent.createConnection = () => connectUnix(socketPath);
  return {
    request: async (method, path, options) => {
      const attempt = () => sendRequest(socketPath, agent, method, path, options);
      try {
        return await attempt();
      } catch (thrown) {
        // A kept connection that the other side had just closed: reading once more is safe.
        if (thrown instanceof StaleConnection) return await attempt();
        throw thrown;
      }
    },
    socket: async (path, protocols, options) => {
      const { openWebSocket } = await import("./node-socket.ts");
      return openWebSocket(socketPath, path, protocols, options);
    },
    close: () => agent.destroy(),
  };
}

class StaleConnection extends CapsemError {}

function sendRequest(
  socketPath: string,
  agent: Agent,
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
    const request = startRequest(socketPath, agent, method, path, options);
    const late = () =>
      request.destroy(
        new CapsemError("timeout", `Cannot finish ${doing}: no answer within ${timeoutMs} ms`, {
          outcome: mutates ? "unknown" : "none",
        }),
      );
    let timer = setTimeout(late, timeoutMs);
    const onAbort = () => request.destroy(cancelled(doing, signal?.reason));
    signal?.addEventListener("abort", onAbort, { once: true });
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    };
    request.once("response", (response) => {
      clearTimeout(timer);
      response.once("close", finish);
      resolve(answerOf(request, response));
    });
    request.once("error", (thrown) => {
      finish();
      const error = toNetworkError(thrown, mutates);
      const stale = request.reusedSocket && !mutates && error.kind === "unavailable" && body === undefined;
      reject(stale ? new StaleConnection("unavailable", error.message, { cause: thrown }) : error);
    });
    const progressed = () => {
      clearTimeout(timer);
      timer = setTimeout(late, timeoutMs);
    };
    sendBody(request, body, progressed).catch((thrown: unknown) => request.destroy(asError(thrown)));
  });
}

function startRequest(
  socketPath: string,
  agent: Agent,
  method: string,
  path: string,
  { query = {}, headers = {}, body, mutates = true }: RequestOptions,
): ClientRequest {
  const words = new URLSearchParams(query).toString();
  const length = body instanceof Uint8Array ? { "content-length": String(body.length) } : {};
  return httpRequest({
    method,
    path: words === "" ? path : `${path}?${words}`,
    host: "localhost",
    headers: { ...headers, ...length },
    ...(mutates ? { createConnection: () => connectUnix(socketPath) } : { agent }),
  });
}

async function sendBody(
  request: ClientRequest,
  body: ByteSource | undefined,
  progressed: () => void,
): Promise<void> {
  if (body === undefined || body instanceof Uint8Array) {
    request.end(body);
    return;
  }
  let over = false;
  const ended = new Promise<void>((resolve) => {
    const end = () => {
      over = true;
      resolve();
    };
    // An answer before the body's end is a refusal: what is left of the body is not sent.
    request.once("close", end).once("error", end).once("response", end);
  });
  for await (const part of body) {
    if (over) return;
    if (!request.write(part)) {
      const drained = new Promise<void>((resolve) => request.once("drain", resolve));
      await Promise.race([drained, ended]);
    }
    progressed();
  }
  if (!over) request.end();
}

function answerOf(request: ClientRequest, response: IncomingMessage): TransportAnswer {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(response.headers))
    if (value !== undefined) headers[name] = Array.isArray(value) ? value.join(", ") : value;
  // A connection that ends later reports here as well as to the reader of the body.
  request.on("error", () => undefined);
  response.on("error", () => undefined);
  return {
    status: response.statusCode ?? 0,
    headers,
    body: bodyOf(response),
    cancel: () => request.destroy(),
  };
}

async function* bodyOf(response: IncomingMessage): AsyncGenerator<Uint8Array> {
  try {
    for await (const part of response) yield part as Uint8Array;
  } catch (thrown) {
    throw thrown instanceof CapsemError ? thrown : toNetworkError(thrown, false);
  }
}

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new CapsemError("internal", "Cannot send body: unexpected error");
}
