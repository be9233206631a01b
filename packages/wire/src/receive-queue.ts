import { concat } from "@capsem/base";

/** Below this a chunk is copied into a shared block, so that its bookkeeping never outweighs its bytes. */
const SMALL_BYTES = 2_048;
const BLOCK_BYTES = 4_096;
/** The first block holds no more than this beside its chunk: most streams have one small chunk waiting at a time. */
const FIRST_SPARE_BYTES = 256;

/**
 * Bytes that arrived and were not read yet. What it holds in memory stays within a small factor of
 * `byteLength` however the peer cut them: small chunks share blocks, and a chunk that is a small view of a
 * large buffer is copied out of it.
 */
export class ReceiveQueue {
  #blocks: Uint8Array[] = [];
  #tail: Uint8Array | undefined;
  #tailUsed = 0;
  #byteLength = 0;

  get byteLength(): number {
    return this.#byteLength;
  }

  push(chunk: Uint8Array): void {
    this.#byteLength += chunk.length;
    if (chunk.length < SMALL_BYTES) {
      this.#append(chunk);
      return;
    }
    this.#seal();
    this.#blocks.push(chunk.length * 2 < chunk.buffer.byteLength ? chunk.slice() : chunk);
  }

  take(): Uint8Array | undefined {
    if (this.#blocks.length === 0) this.#seal();
    const block = this.#blocks.shift();
    if (block !== undefined) this.#byteLength -= block.length;
    return block;
  }

  /** Everything as one array; no copy when it is one already. */
  takeAll(): Uint8Array {
    this.#seal();
    const whole = concat(this.#blocks);
    this.clear();
    return whole;
  }

  clear(): void {
    this.#blocks = [];
    this.#tail = undefined;
    this.#byteLength = 0;
  }

  #append(chunk: Uint8Array): void {
    if (this.#tail === undefined || this.#tailUsed + chunk.length > this.#tail.length) {
      const isFirst = this.#tail === undefined && this.#blocks.length === 0;
      this.#seal();
      this.#tail = new Uint8Array(isFirst ? chunk.length + FIRST_SPARE_BYTES : BLOCK_BYTES);
      this.#tailUsed = 0;
    }
    this.#tail.set(chunk, this.#tailUsed);
    this.#tailUsed += chunk.length;
  }

  #seal(): void {
    if (this.#tail === undefined) return;
    this.#blocks.push(this.#tail.subarray(0, this.#tailUsed));
    this.#tail = undefined;
  }
}
