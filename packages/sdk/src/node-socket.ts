import type { createConnection } from "node:net";
import { type Deferred, defer } from "@capsem/base";
import { WebSocket } from "ws";
import { type CapsemError, cancelled, errorOfAnswer, CapsemError as Failed } from "./error.ts";
import {
  ERROR_BYTES_MAX,
  EVENT_BYTES_MAX,
  REQUEST_TIMEOUT_MS,
  SOCKET_CLOSE_MS,
  SOCKET_QUEUE_BYTES_MAX,
} from "./limits.ts";
import type { Dial } from "./node-dial.ts";
import { toNetworkError } from "./node-error.ts";
import type { SocketOptions, TransportSocket } from "./transport.ts";

/** A WebSocket whose receiver sets the pace: a full queue pauses the connection. */
export function openWebSocket(
  dial: Dial,
  path: string,
  protocols: readonly string[],
  { signal, headers = {}, timeoutMs = REQUEST_TIMEOUT_MS }: SocketOptions,
): Promise<TransportSocket> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(cancelled(path, signal.reason));
      return;
    }
    const socket = new WebSocket(`${dial.webSocket}${path}`, [...protocols], {
      // It goes through to node:http, which takes a connection that is given later too.
      ...(dial.connect === undefined
        ? {}
        : { createConnection: dial.connect as unknown as typeof createConnection }),
      headers: { ...headers },
      maxPayload: EVENT_BYTES_MAX,
      followRedirects: false,
      perMessageDeflate: false,
    });
    let settled = false;
    const fail = (error: CapsemError) => {
      if (settled) return;
      settle();
      reject(error);
      socket.terminate();
    };
    const onAbort = () => fail(cancelled(path, signal?.reason));
    const timer = setTimeout(
      () => fail(new Failed("timeout", `Cannot open stream: no answer within ${timeoutMs} ms`)),
      timeoutMs,
    );
    const settle = () => {
      settled = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    // Made before the upgrade: frames may come in the same packet as its answer.
    const connection = connectionOf(socket, dial.peer);
    socket.on("error", (thrown) => fail(toNetworkError(thrown, false, dial.name)));
    socket.once("unexpected-response", (_request, response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => {
        if (text.length < ERROR_BYTES_MAX) text += part;
      });
      response.once("close", () =>
        fail(errorOfAnswer({ status: response.statusCode ?? 0, headers: {}, mutates: false }, text)),
      );
    });
    socket.once("open", () => {
      settle();
      resolve(connection);
    });
  });
}

function connectionOf(socket: WebSocket, peer: string): TransportSocket {
  const queue: Uint8Array[] = [];
  const closed: Deferred<{ code: number; reason: string }> = defer();
  let queueBytes = 0;
  let over = false;
  let arrival: Deferred<void> = defer();
  socket.on("message", (data) => {
    const bytes = data as Buffer;
    queue.push(bytes);
    queueBytes += bytes.length;
    if (queueBytes > SOCKET_QUEUE_BYTES_MAX) socket.pause();
    arrival.resolve();
  });
  socket.on("close", (code, reason) => {
    over = true;
    closed.resolve({ code, reason: reason.toString("utf8") });
    arrival.resolve();
  });
  async function* receive(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const bytes = queue.shift();
      if (bytes !== undefined) {
        queueBytes -= bytes.length;
        if (socket.isPaused && queueBytes <= SOCKET_QUEUE_BYTES_MAX / 2) socket.resume();
        yield bytes;
      } else if (over) return;
      else {
        arrival = defer();
        await arrival.promise;
      }
    }
  }
  return {
    peer,
    send: (bytes) =>
      new Promise((resolve, reject) => {
        socket.send(bytes, (error) => (error ? reject(toNetworkError(error, true)) : resolve()));
      }),
    receive,
    closed: closed.promise,
    close: (code = 1000) => closeSoon(socket, code),
  };
}

/** A peer that does not answer the close, or output that nobody reads any more, must not keep the connection. */
function closeSoon(socket: WebSocket, code: number): void {
  if (socket.readyState === WebSocket.CLOSED) return;
  const timer = setTimeout(() => socket.terminate(), SOCKET_CLOSE_MS);
  socket.once("close", () => clearTimeout(timer));
  socket.removeAllListeners("message");
  socket.resume();
  socket.close(code);
}
