import type { Duplex } from "node:stream";
import { closeFrame, FrameBoundary } from "./frame-boundary.ts";
import { WEBSOCKET_LIMITS } from "./limits.ts";

/** One open WebSocket: bytes pass unread, at the slower side's pace. */
export interface Tunnel {
  /** Tells the client between two frames, and ends both sides. The service hears nothing more from the client. */
  close(code: number, reason: string): void;
  readonly closed: Promise<void>;
}

/** Owns both sockets. The client's end is told to the service and the other way round; neither outlives the other. */
export function openTunnel(client: Duplex, service: Duplex): Tunnel {
  const boundary = new FrameBoundary();
  let ending: Buffer | null = null;
  const finish = (frame: Buffer) => {
    service.destroy();
    client.end(frame);
    // What the client still sends is not for anyone; its own close frame is among it.
    client.resume();
  };
  const toClient = (chunk: Buffer) => {
    const followed = boundary.follow(chunk, ending !== null);
    const isTaken = client.write(chunk.subarray(0, followed));
    if (ending !== null && boundary.isBetween) finish(ending);
    else if (!isTaken) service.pause();
  };
  const toService = (chunk: Buffer) => {
    if (ending === null && !service.write(chunk)) client.pause();
  };
  service.on("data", toClient).on("drain", () => client.resume());
  client.on("data", toService).on("drain", () => service.resume());
  const closed = Promise.all([endWith(client, service), endWith(service, client)]).then(() => undefined);
  return {
    closed,
    close(code, reason) {
      if (ending !== null) return;
      ending = closeFrame(code, reason);
      cutLater(client);
      cutLater(service);
      if (boundary.isBetween) finish(ending);
    },
  };
}

/** When `from` ends or breaks, `to` ends once its bytes are out, or is cut when it does not take them. */
function endWith(from: Duplex, to: Duplex): Promise<void> {
  return new Promise((resolve) => {
    from.on("error", () => from.destroy());
    from.once("end", () => {
      to.end();
      cutLater(to);
    });
    from.once("close", () => {
      to.end();
      cutLater(to);
      resolve();
    });
  });
}

function cutLater(socket: Duplex): void {
  if (socket.destroyed) return;
  const timer = setTimeout(() => socket.destroy(), WEBSOCKET_LIMITS.closeTimeoutMs);
  socket.once("close", () => clearTimeout(timer));
}
