import { FRAME_PREFIX_BYTES, getU32 } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";

/** What a reader found. Each method returns true to go on and false to stop for good. */
export interface FrameSink {
  /** `payload` may be a view into the chunk that was pushed. */
  frame(type: number, id: number, payload: Uint8Array): boolean;
  /** Before room is made for a payload that arrives in pieces. */
  header(type: number, id: number, payloadBytes: number): boolean;
  /** A length word out of bounds at a frame boundary; `rest` is what follows the word. */
  badLength(word: number, rest: Uint8Array): void;
}

const EMPTY = new Uint8Array(0);

/**
 * Cuts a byte stream into frames. Every byte is copied at most once, and not at all when its frame lies
 * within one chunk. Keeps at most one payload, made only after its length was checked.
 */
export class FrameReader {
  readonly #sink: FrameSink;
  readonly #prefix = new Uint8Array(FRAME_PREFIX_BYTES);
  #prefixUsed = 0;
  #type = 0;
  #id = 0;
  #body: Uint8Array | undefined;
  #bodyUsed = 0;
  #stopped = false;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  get bufferedBytes(): number {
    return this.#prefixUsed + (this.#body?.length ?? 0);
  }

  /** Whether all that was pushed were whole frames. */
  get isBetweenFrames(): boolean {
    return this.#prefixUsed === 0 && this.#body === undefined;
  }

  stop(): void {
    this.#stopped = true;
    this.#body = undefined;
  }

  push(chunk: Uint8Array): void {
    let at = 0;
    while (at < chunk.length && !this.#stopped) {
      if (this.#body !== undefined) at = this.#takeBody(this.#body, chunk, at);
      else if (this.#prefixUsed === 0 && chunk.length - at >= FRAME_PREFIX_BYTES) {
        at = this.#startFrame(chunk, at, chunk, at + FRAME_PREFIX_BYTES);
      } else at = this.#takePrefix(chunk, at);
    }
  }

  #takePrefix(chunk: Uint8Array, start: number): number {
    let at = start;
    while (at < chunk.length && this.#prefixUsed < FRAME_PREFIX_BYTES) {
      this.#prefix[this.#prefixUsed] = chunk[at] ?? 0;
      this.#prefixUsed += 1;
      at += 1;
      if (this.#prefixUsed === 4 && !this.#isLengthGood(this.#prefix, 0, chunk, at)) return at;
    }
    if (this.#prefixUsed < FRAME_PREFIX_BYTES) return at;
    this.#prefixUsed = 0;
    return this.#startFrame(this.#prefix, 0, chunk, at);
  }

  /** `prefix` holds nine bytes from `prefixAt`; the payload starts in `chunk` at `at`. */
  #startFrame(prefix: Uint8Array, prefixAt: number, chunk: Uint8Array, at: number): number {
    if (!this.#isLengthGood(prefix, prefixAt, chunk, prefix === chunk ? prefixAt + 4 : at)) return at;
    const payloadBytes = getU32(prefix, prefixAt) - WIRE_LIMITS.frameHeaderBytes;
    const type = prefix[prefixAt + 4] ?? 0;
    const id = getU32(prefix, prefixAt + 5);
    const end = at + payloadBytes;
    if (end <= chunk.length) {
      this.#emit(type, id, payloadBytes === 0 ? EMPTY : chunk.subarray(at, end));
      return end;
    }
    if (!this.#sink.header(type, id, payloadBytes)) {
      this.stop();
      return at;
    }
    this.#type = type;
    this.#id = id;
    this.#body = new Uint8Array(payloadBytes);
    this.#bodyUsed = 0;
    return at;
  }

  #takeBody(body: Uint8Array, chunk: Uint8Array, at: number): number {
    const taken = Math.min(body.length - this.#bodyUsed, chunk.length - at);
    body.set(taken === chunk.length ? chunk : chunk.subarray(at, at + taken), this.#bodyUsed);
    this.#bodyUsed += taken;
    if (this.#bodyUsed === body.length) {
      this.#body = undefined;
      this.#emit(this.#type, this.#id, body);
    }
    return at + taken;
  }

  #isLengthGood(prefix: Uint8Array, prefixAt: number, chunk: Uint8Array, restAt: number): boolean {
    const word = getU32(prefix, prefixAt);
    if (word >= WIRE_LIMITS.frameHeaderBytes && word <= WIRE_LIMITS.frameBytesMax) return true;
    this.stop();
    this.#sink.badLength(word, chunk.subarray(restAt));
    return false;
  }

  #emit(type: number, id: number, payload: Uint8Array): void {
    if (!this.#sink.frame(type, id, payload)) this.stop();
  }
}
