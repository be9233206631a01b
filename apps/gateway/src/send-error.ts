import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { ERRORS, type ErrorKind } from "@capsem/api";
import type { Failure } from "@capsem/base";
import type { Headers } from "./cors.ts";
import { HTTP_LIMITS } from "./limits.ts";

/** The API's error object: never a detail, a cause or a stack. */
function errorText({ kind, message, retryable }: Failure<ErrorKind>): { status: number; text: string } {
  const { status } = ERRORS[kind];
  return { status, text: JSON.stringify({ error: { kind, reason: message, status, retryable } }) };
}

/** Whoever is refused so keeps no connection: they are counted. */
const UNWELCOME: ReadonlySet<ErrorKind> = new Set(["unauthorized", "throttled", "origin_refused"]);

/** Answers with an error. An answer that has begun can only be cut: the client sees that it is not whole. */
export function sendError(
  request: IncomingMessage,
  response: ServerResponse,
  failure: Failure<ErrorKind>,
  headers: Headers,
): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const { status, text } = errorText(failure);
  if (!request.complete || UNWELCOME.has(failure.kind)) response.setHeader("connection", "close");
  response.writeHead(status, {
    ...headers,
    "content-type": "application/json",
    "content-length": Buffer.byteLength(text),
  });
  response.write(text);
  endWhenSent(request, response);
}

/**
 * Ends an answer whose last byte was written. A client that still sends its body gets the time to read the answer:
 * closing a connection with unread bytes resets it, and the answer would be lost with it.
 */
export function endWhenSent(request: IncomingMessage, response: ServerResponse): void {
  if (request.complete || request.destroyed) {
    response.end();
    return;
  }
  let bytes = 0;
  const end = () => {
    clearTimeout(timer);
    response.end();
  };
  const timer = setTimeout(end, HTTP_LIMITS.refusedBodyMs);
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > HTTP_LIMITS.refusedBodyBytesMax) end();
  });
  request.once("end", end).once("close", end);
  request.resume();
}

/** For sockets that no answer object belongs to: what Node could not parse, and upgrades. */
export function refuseSocket(socket: Duplex, failure: Failure<ErrorKind>, headers: Headers): void {
  const { status, text } = errorText(failure);
  const lines = Object.entries({
    ...headers,
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(text)),
    connection: "close",
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.on("error", () => socket.destroy());
  socket.end(`HTTP/1.1 ${status} Refused\r\n${lines.join("")}\r\n${text}`, () => lingerAndDestroy(socket));
}

/** Reads what still comes for a moment, so that our answer is not lost in a reset. */
function lingerAndDestroy(socket: Duplex): void {
  const timer = setTimeout(() => socket.destroy(), HTTP_LIMITS.refusedBodyMs);
  socket.once("close", () => clearTimeout(timer));
  socket.once("end", () => socket.destroy());
  socket.resume();
}
