import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { apiFailure } from "@capsem/api";
import { type RawData, type WebSocket, WebSocketServer } from "ws";
import type { Frame, FrameSocket } from "./job/frame-socket.ts";
import { STREAM_LIMITS } from "./limits.ts";

export const STREAM_PROTOCOL = "capsem.stream.v1";

const server = new WebSocketServer({
  noServer: true,
  // The library closes with 1009 before it keeps a byte more.
  maxPayload: STREAM_LIMITS.frameBytesMax,
  perMessageDeflate: false,
  handleProtocols: (offered) => (offered.has(STREAM_PROTOCOL) ? STREAM_PROTOCOL : false),
});

export function checkProtocol(request: IncomingMessage): void {
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((word) => word.trim());
  if (!offered.includes(STREAM_PROTOCOL)) {
    throw apiFailure(
      "invalid_input",
      `Cannot open the stream: subprotocol ${STREAM_PROTOCOL} is not offered`,
    );
  }
}

/** Accepts the upgrade. The socket belongs to the WebSocket from then on. */
export function acceptWebSocket(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
): Promise<FrameSocket> {
  return new Promise((resolve, reject) => {
    socket.once("close", () => reject(apiFailure("cancelled", "Cannot open the stream: the client is gone")));
    server.handleUpgrade(request, socket, head, (webSocket) => resolve(frameSocket(webSocket)));
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
    send(frame) {
      return new Promise((resolve, reject) => {
        webSocket.send(frame, (error) => {
          if (error == null) resolve();
          else reject(apiFailure("cancelled", "Cannot send: the client is gone", { cause: error }));
        });
      });
    },
    close(code, reason) {
      // A paused socket would never see the client's answer to the close.
      webSocket.resume();
      webSocket.close(code, reason);
    },
  };
}
