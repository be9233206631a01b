import { APP_LIMITS } from "./limits.ts";

/** Bodies of one append where the thread that commits reads them. Whoever took it gives it back. */
export interface LentBodies {
  readonly bodies: readonly Uint8Array[];
  giveBack(): void;
}

/**
 * Memory that both threads see, used over and over: a mebibyte of fresh pages costs more than the copy into it.
 */
export class BodyMemory {
  readonly #free: SharedArrayBuffer[] = [];
  #freeBytes = 0;

  lend(bodies: readonly Uint8Array[]): LentBodies {
    const bytes = bodies.reduce((sum, { byteLength }) => sum + byteLength, 0);
    if (bytes === 0) return { bodies, giveBack: () => undefined };
    const memory = this.#take(bytes);
    let at = 0;
    const lent = bodies.map((body) => {
      const part = new Uint8Array(memory, at, body.byteLength);
      part.set(body);
      at += body.byteLength;
      return part;
    });
    return { bodies: lent, giveBack: () => this.#give(memory) };
  }

  #take(bytes: number): SharedArrayBuffer {
    const at = this.#free.findIndex(({ byteLength }) => byteLength >= bytes);
    const [found] = at < 0 ? [] : this.#free.splice(at, 1);
    if (found === undefined) return new SharedArrayBuffer(2 ** Math.ceil(Math.log2(bytes)));
    this.#freeBytes -= found.byteLength;
    return found;
  }

  #give(memory: SharedArrayBuffer): void {
    if (this.#freeBytes + memory.byteLength > APP_LIMITS.bodyMemoryBytesMax) return;
    this.#free.push(memory);
    this.#freeBytes += memory.byteLength;
  }
}
