import { createHash, type Hash } from "node:crypto";

/** Counts bytes that pass, and sums up those of a whole file. */
export class ByteMeter {
  bytes = 0;
  readonly #hash: Hash | null;

  constructor(isWhole: boolean) {
    this.#hash = isWhole ? createHash("sha256") : null;
  }

  add(chunk: Uint8Array): void {
    this.bytes += chunk.length;
    this.#hash?.update(chunk);
  }

  /** The same chunks, counted as each is taken. */
  async *through(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const chunk of chunks) {
      this.add(chunk);
      yield chunk;
    }
  }

  /** Once, after the last byte. Null for a part of a file. */
  sha256(): string | null {
    return this.#hash?.digest("hex") ?? null;
  }
}
