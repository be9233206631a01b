import { type Deferred, defer, utf8 } from "@capsem/base";
import { CapsemError, cancelled } from "./error.ts";
import {
  REQUEST_TIMEOUT_MS,
  WEB_QUEUE_BYTES_MAX,
  WEB_UNSENT_BYTES_MAX,
  WEB_UNSENT_POLL_MS,
} from "./limits.ts";
import { UnexplainedRefusal } from "./open-socket.ts";
import { GATEWAY_PEER, type SocketOptions, type TransportSocket } from "./transport.ts";

/** The part of the runtime's WebSocket that is used here. */
export interface WebSocketLike {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  onopen: ((event: never) => unknown) | null;
  onclose: ((event: never) => unknown) | null;
  onerror: ((event: never) => unknown) | null;
  onmessage: ((event: never) => unknown) | null;
  send(data: Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
}
export type WebSocketClass = new (url: string, protocols: string[]) => WebSocketLike;

const OPEN = 1;
const NORMAL_CLOSURE = 1000;
const ABNORMAL_CLOSURE = 1006;
/** Of the range that an application may use. */
const READER_BEHIND = 4000;

export function openNativeSocket(
  Native: WebSocketClass | undefined,
  url: string,
  protocols: readonly string[],
  { signal, timeoutMs = REQUEST_TIMEOUT_MS }: SocketOptions,
): Promise<TransportSocket> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) throw cancelled("opening a stream", signal.reason);
    if (Native === undefined)
      throw new CapsemError(
        "invalid_input",
        'Cannot open stream: this runtime has no WebSocket, use "@capsem/sdk/node" or give a webSocket',
      );
    const socket = new Native(url, [...protocols]);
    socket.binaryType = "arraybuffer";
    const connection = connectionOf(socket);
    let settled = false;
    const settle = () => {
      settled = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    };
    const fail = (error: CapsemError) => {
      if (settled) return;
      settle();
      reject(error);
      socket.close();
    };
    const onAbort = () => fail(cancelled("opening a stream", signal?.reason));
    const timer = setTimeout(
      () => fail(new CapsemError("timeout", `Cannot open stream: no answer within ${timeoutMs} ms`)),
      timeoutMs,
    );
    signal?.addEventListener("abort", onAbort, { once: true });
    const refused = (code: number) =>
      fail(
        new UnexplainedRefusal("unavailable", `Cannot open stream: it was refused or lost (code ${code})`),
      );
    socket.onopen = () => {
      settle();
      resolve(connection);
    };
    // Older runtimes say no more of a socket that never opened; else `close` follows and tells more.
    socket.onerror = () => refused(ABNORMAL_CLOSURE);
    connection.closed.then(({ code }) => refused(code));
  });
}

interface Message {
  readonly data: ArrayBuffer | string;
}

function connectionOf(socket: WebSocketLike): TransportSocket {
  const queue: Uint8Array[] = [];
  const closed: Deferred<{ code: number; reason: string }> = defer();
  let queueBytes = 0;
  let over = false;
  let arrival: Deferred<void> = defer();
  const end = (code: number, reason: string) => {
    if (over) return;
    over = true;
    closed.resolve({ code, reason });
    arrival.resolve();
  };
  socket.onmessage = ({ data }: Message) => {
    if (over) return;
    const bytes = typeof data === "string" ? utf8(data) : new Uint8Array(data);
    queue.push(bytes);
    queueBytes += bytes.length;
    arrival.resolve();
    if (queueBytes <= WEB_QUEUE_BYTES_MAX) return;
    // It cannot be paused. What waits is still given; a job is attached again at its offset.
    end(READER_BEHIND, `the reader is over ${WEB_QUEUE_BYTES_MAX} bytes behind`);
    socket.close(READER_BEHIND);
  };
  socket.onclose = ({ code, reason }: { code: number; reason: string }) => end(code, reason);
  async function* receive(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const bytes = queue.shift();
      if (bytes !== undefined) {
        queueBytes -= bytes.length;
        yield bytes;
      } else if (over) return;
      else {
        arrival = defer();
        await arrival.promise;
      }
    }
  }
  return {
    peer: GATEWAY_PEER,
    send: (bytes) => send(socket, bytes),
    receive,
    closed: closed.promise,
    close: (code = NORMAL_CLOSURE) => {
      socket.onmessage = null;
      socket.close(code);
    },
  };
}

/** There is no event for a drained buffer, so it is looked at. */
async function send(socket: WebSocketLike, bytes: Uint8Array): Promise<void> {
  if (socket.readyState !== OPEN)
    throw new CapsemError("unavailable", "Cannot send: the connection has ended", {
      retryable: false,
      outcome: "unknown",
    });
  socket.send(bytes as Uint8Array<ArrayBuffer>);
  while (socket.readyState === OPEN && socket.bufferedAmount > WEB_UNSENT_BYTES_MAX)
    await new Promise((resolve) => setTimeout(resolve, WEB_UNSENT_POLL_MS));
}
