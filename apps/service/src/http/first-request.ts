import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";

/**
 * Closes a connection that has not sent the whole head of its first request in time. The HTTP server's own deadlines
 * begin with a request's first byte, or its end: whoever sends none would hold one of few places for ever.
 */
export function limitFirstRequest(http: Server, timeoutMs: number): void {
  const waiting = new WeakMap<Duplex, NodeJS.Timeout>();
  const forget = (socket: Duplex) => {
    clearTimeout(waiting.get(socket));
    waiting.delete(socket);
  };
  http.on("connection", (socket: Duplex) => {
    const timer = setTimeout(() => socket.destroy(), timeoutMs);
    // A connection that says nothing must not keep a stopped service alive.
    timer.unref();
    waiting.set(socket, timer);
    socket.once("close", () => forget(socket));
  });
  for (const came of ["request", "checkContinue", "upgrade"]) {
    http.on(came, ({ socket }: IncomingMessage) => forget(socket));
  }
}
