import type { Readable } from "node:stream";

/**
 * Pulls chunks from a child's pipe: nothing more is read while nobody asks, so the child waits and memory
 * stays bounded. It listens from the first moment, because Node throws away what is unread when a child
 * ends. An error of the pipe is its end.
 */
export class ChunkSource {
  readonly #stream: Readable;
  #isOver = false;
  #wake: (() => void) | undefined;

  constructor(stream: Readable) {
    this.#stream = stream;
    const wake = () => this.#wake?.();
    const over = () => {
      this.#isOver = true;
      wake();
    };
    stream.on("readable", wake);
    stream.on("end", over);
    stream.on("error", over);
    stream.on("close", over);
  }

  /** The next chunk, or null at the end. One reader at a time. */
  async next(): Promise<Buffer | null> {
    for (;;) {
      const chunk: Buffer | null = this.#stream.read();
      if (chunk !== null) return chunk;
      if (this.#isOver) return null;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
  }

  /** Reads on and throws away, so that whoever writes is not held up. */
  async discard(): Promise<void> {
    while ((await this.next()) !== null);
  }

  /** Everything to the end, or undefined as soon as it is more than `bytesMax`. */
  async takeAll(bytesMax: number): Promise<Buffer | undefined> {
    const parts: Buffer[] = [];
    let length = 0;
    for (let chunk = await this.next(); chunk !== null; chunk = await this.next()) {
      parts.push(chunk);
      length += chunk.length;
      if (length > bytesMax) return undefined;
    }
    return Buffer.concat(parts);
  }

  /** The first `bytesMax` bytes of all that comes; the rest is thrown away. */
  async gather(bytesMax: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    let length = 0;
    for (let chunk = await this.next(); chunk !== null; chunk = await this.next()) {
      if (length >= bytesMax) continue;
      parts.push(chunk.subarray(0, bytesMax - length));
      length += chunk.length;
    }
    return Buffer.concat(parts);
  }
}
