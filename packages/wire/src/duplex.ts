import type { Duplex, Readable } from "node:stream";
import type { Mux, Transport } from "./types.ts";

/** What a transport needs of a Node stream: a socket, one end of a pair, or a pipe handle. */
export type DuplexLike = Pick<
  Duplex,
  | "write"
  | "end"
  | "destroy"
  | "on"
  | "once"
  | "cork"
  | "uncork"
  | "destroyed"
  | "writableEnded"
  | "writableLength"
>;

/**
 * What may wait in the stream's own buffer. Node asks to stop after 16 KiB, which would make every frame wait for
 * a turn of the event loop: under emulation a turn costs milliseconds.
 */
const WAITING_BYTES_MAX = 262_144;

/** How long the last frames may take to leave after `close`, before the descriptor goes anyway. */
const CLOSE_TIMEOUT_MS = 1_000;

/** Owns the duplex: `close` lets what was written leave, then destroys it. */
export function muxTransport(duplex: DuplexLike): Transport {
  let isCorked = false;
  let isClosed = false;
  const uncork = () => {
    isCorked = false;
    duplex.uncork();
  };
  return {
    write(chunk) {
      if (isClosed || duplex.destroyed || duplex.writableEnded) return true;
      if (!isCorked) {
        // All frames of one turn leave in one system call, those too that answer what the first ones settled.
        isCorked = true;
        duplex.cork();
        process.nextTick(uncork);
      }
      // After a false of its own the stream says "drain" when it is empty: it is never later than ours.
      return duplex.write(chunk) || duplex.writableLength < WAITING_BYTES_MAX;
    },
    onDrain(listener) {
      duplex.on("drain", listener);
    },
    close() {
      if (isClosed) return;
      isClosed = true;
      if (duplex.destroyed) return;
      const timer = setTimeout(() => duplex.destroy(), CLOSE_TIMEOUT_MS);
      duplex.once("close", () => clearTimeout(timer));
      duplex.end(() => duplex.destroy());
    },
  };
}

/** Feeds a mux or a lane until the duplex is over, for whatever cause. Credit bounds what they keep. */
export function pump(source: Pick<Readable, "on">, sink: Pick<Mux, "receive" | "lost">): void {
  source.on("data", (chunk: Uint8Array) => sink.receive(chunk));
  source.on("end", () => sink.lost("the peer closed its end"));
  source.on("error", (error: Error) => sink.lost(error.message));
  source.on("close", () => sink.lost("the transport closed"));
}
