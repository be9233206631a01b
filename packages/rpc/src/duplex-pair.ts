import { Duplex } from "node:stream";

/** Two joined streams of one process: what one writes the other reads, with the back-pressure of a socket. */
export function duplexPair(): [Duplex, Duplex] {
  const left = new JoinedDuplex();
  const right = new JoinedDuplex();
  left.join(right);
  right.join(left);
  return [left, right];
}

class JoinedDuplex extends Duplex {
  #peer: JoinedDuplex | undefined;
  #waiting: (() => void) | undefined;

  join(peer: JoinedDuplex): void {
    this.#peer = peer;
  }

  override _read(): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.();
  }

  override _write(chunk: Uint8Array, _encoding: string, done: () => void): void {
    this.#peer?.accept(chunk, done);
  }

  override _final(done: () => void): void {
    this.#peer?.push(null);
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#peer?.push(null);
    done(error);
  }

  accept(chunk: Uint8Array, done: () => void): void {
    if (this.destroyed || this.readableEnded) done();
    else if (this.push(Buffer.from(chunk))) done();
    else this.#waiting = done;
  }
}
