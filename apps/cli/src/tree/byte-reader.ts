import { broken } from "./tar-header.ts";

/** Exact reads and bounded pieces out of parts of any size. */
export class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #part: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Null at the end of the source before the first byte; an end after it is a broken tree. */
  async exactly(length: number): Promise<Buffer | null> {
    const whole: Buffer[] = [];
    let missing = length;
    while (missing > 0) {
      const piece = await this.upTo(missing);
      if (piece === null) {
        if (missing === length) return null;
        throw broken("it is cut off");
      }
      whole.push(piece);
      missing -= piece.length;
    }
    return whole.length === 1 && whole[0] !== undefined ? whole[0] : Buffer.concat(whole);
  }

  /** The next bytes there are, at most `length`; null at the end. */
  async upTo(length: number): Promise<Buffer | null> {
    while (this.#part.length === 0) {
      const next = await this.#source.next();
      if (next.done === true) return null;
      this.#part = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
    }
    const piece = this.#part.subarray(0, length);
    this.#part = this.#part.subarray(piece.length);
    return piece;
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }
}
