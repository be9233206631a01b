import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { apiFailure } from "@capsem/api";
import { type RawData, type WebSocket, WebSocketServer } from "ws";
import type { Frame, FrameSocket } from "./job/frame-socket.ts";
import { EVENT_LIMITS, STREAM_LIMITS } from "./limits.ts";

/** The subprotocol of each WebSocket route, and the largest frame that its client may send. */
const PROTOCOLS = {
  stream: { name: "capsem.stream.v1", frameBytesMax: STREAM_LIMITS.frameBytesMax },
  events: { name: "capsem.events.v1", frameBytesMax: EVENT_LIMITS.clientFrameBytesMax },
} as const;
export type SocketRoute = keyof typeof PROTOCOLS;

const servers: Readonly<Record<SocketRoute, WebSocketServer>> = {
  stream: serverOf(PROTOCOLS.stream),
  events: serverOf(PROTOCOLS.events),
};

function serverOf({ name, frameBytesMax }: (typeof PROTOCOLS)[SocketRoute]): WebSocketServer {
  return new WebSocketServer({
    noServer: true,
    // The library closes with 1009 before it keeps a byte more.
    maxPayload: frameBytesMax,
    perMessageDeflate: false,
    handleProtocols: (offered) => (offered.has(name) ? name : false),
  });
}

/** Null: the route is no WebSocket. */
export function socketRouteOf(route: string): SocketRoute | null {
  return route === "stream" || route === "events" ? route : null;
}

export function checkProtocol(request: IncomingMessage, route: SocketRoute): void {
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((word) => word.trim());
  const { name } = PROTOCOLS[route];
  if (!offered.includes(name)) {
    throw apiFailure("invalid_input", `Cannot open the WebSocket: subprotocol ${name} is not offered`);
  }
}

/** Accepts the upgrade. The socket belongs to the WebSocket from then on. */
export function acceptWebSocket(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  route: SocketRoute,
): Promise<FrameSocket> {
  return new Promise((resolve, reject) => {
    socket.once("close", () => reject(apiFailure("cancelled", "Cannot open the stream: the client is gone")));
    servers[route].handleUpgrade(request, socket, head, (webSocket) => resolve(frameSocket(webSocket)));
  });
}

/** A pull interface: a client that sends faster than it is read is paused, not buffered. */
function frameSocket(webSocket: WebSocket): FrameSocket {
  const waiting: Frame[] = [];
  let wake: (() => void) | null = null;
  let isOver = false;
  const closed = new Promise<void>((resolve) => {
    webSocket.on("close", () => {
      isOver = true;
      wake?.();
      resolve();
    });
  });
  // A violation of the WebSocket protocol itself: the library closes with its code, and `close` follows.
  webSocket.on("error", () => undefined);
  webSocket.on("message", (data: RawData, isBinary: boolean) => {
    waiting.push(isBinary ? { isBinary, bytes: data as Buffer } : { isBinary });
    if (waiting.length >= STREAM_LIMITS.framesWaitingMax) webSocket.pause();
    wake?.();
  });
  return {
    closed,
    async next() {
      while (waiting.length === 0 && !isOver) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      const frame = waiting.shift() ?? null;
      if (webSocket.isPaused && waiting.length < STREAM_LIMITS.framesWaitingMax / 2) webSocket.resume();
      return frame;
    },
    send: (frame) => send(webSocket, frame),
    sendText: (text) => send(webSocket, text),
    close(code, reason) {
      // A paused socket would never see the client's answer to the close.
      webSocket.resume();
      webSocket.close(code, reason);
    },
  };
}

function send(webSocket: WebSocket, data: Uint8Array | string): Promise<void> {
  return new Promise((resolve, reject) => {
    webSocket.send(data, (error) => {
      if (error == null) resolve();
      else reject(apiFailure("cancelled", "Cannot send: the client is gone", { cause: error }));
    });
  });
}
