import { FRAME_PREFIX_BYTES, FRAME_TYPES, getU32, PAYLOAD_BYTES_MAX } from "./frame.ts";
import { WIRE_LIMITS } from "./limits.ts";

const HELLO_LENGTH_MAX =
  WIRE_LIMITS.frameHeaderBytes + Math.min(WIRE_LIMITS.helloBytesMax, PAYLOAD_BYTES_MAX);

export interface FoundHello {
  /** The payload of the hello frame behind the sync word. */
  readonly payload: Uint8Array;
  /** What follows the hello frame. */
  readonly rest: Uint8Array;
}

/**
 * Throws input away until a sync word with a hello frame behind it. A sync word without one was data: the
 * search goes on right behind the word. Linear in its input, whatever the chunks.
 */
export class SyncScanner {
  readonly #word: Uint8Array;
  readonly #fallback: readonly number[];
  #matched = 0;
  /** Bytes behind the word, once it was seen. */
  #candidate: Uint8Array | undefined;
  #candidateUsed = 0;
  #staleBytes = 0;

  constructor(word: Uint8Array) {
    this.#word = word;
    this.#fallback = fallbacksOf(word);
  }

  /** Bytes thrown away so far. */
  get staleBytes(): number {
    return this.#staleBytes;
  }

  push(chunk: Uint8Array): FoundHello | undefined {
    let input = chunk;
    while (input.length > 0) {
      if (this.#candidate === undefined) {
        input = this.#seek(input);
        continue;
      }
      const found = this.#collect(this.#candidate, input);
      if (found.kind === "hello") return { payload: found.payload, rest: found.rest };
      if (found.kind === "more") return undefined;
      input = found.again;
    }
    return undefined;
  }

  /** What follows the word, or nothing when the chunk does not complete it. */
  #seek(chunk: Uint8Array): Uint8Array {
    const word = this.#word;
    let matched = this.#matched;
    let at = 0;
    while (at < chunk.length && matched < word.length) {
      if (matched === 0) {
        const next = chunk.indexOf(word[0] ?? 0, at);
        if (next < 0) {
          at = chunk.length;
          break;
        }
        at = next;
      }
      while (matched > 0 && chunk[at] !== word[matched]) matched = this.#fallback[matched - 1] ?? 0;
      if (chunk[at] === word[matched]) matched += 1;
      at += 1;
    }
    this.#staleBytes += at;
    if (matched < word.length) {
      this.#matched = matched;
      return chunk.subarray(chunk.length);
    }
    this.#matched = 0;
    this.#staleBytes = Math.max(0, this.#staleBytes - word.length);
    this.#candidate = new Uint8Array(FRAME_PREFIX_BYTES + WIRE_LIMITS.helloBytesMax);
    this.#candidateUsed = 0;
    return chunk.subarray(at);
  }

  #collect(candidate: Uint8Array, input: Uint8Array): Collected {
    let rest = input;
    for (;;) {
      const wanted = neededBytes(candidate, this.#candidateUsed);
      if (wanted === "not a hello") return { kind: "data", again: this.#giveUp(candidate, rest) };
      const missing = wanted - this.#candidateUsed;
      if (missing === 0) {
        this.#candidate = undefined;
        return { kind: "hello", payload: candidate.slice(FRAME_PREFIX_BYTES, wanted), rest };
      }
      if (rest.length === 0) return { kind: "more" };
      const taken = rest.subarray(0, missing);
      candidate.set(taken, this.#candidateUsed);
      this.#candidateUsed += taken.length;
      rest = rest.subarray(taken.length);
    }
  }

  #giveUp(candidate: Uint8Array, rest: Uint8Array): Uint8Array {
    const again = new Uint8Array(this.#candidateUsed + rest.length);
    again.set(candidate.subarray(0, this.#candidateUsed));
    again.set(rest, this.#candidateUsed);
    this.#candidate = undefined;
    this.#staleBytes += this.#word.length;
    return again;
  }
}

type Collected =
  | { readonly kind: "hello"; readonly payload: Uint8Array; readonly rest: Uint8Array }
  | { readonly kind: "more" }
  | { readonly kind: "data"; readonly again: Uint8Array };

/** How many bytes the frame has as far as is known: its prefix first, then all of it. */
function neededBytes(candidate: Uint8Array, used: number): number | "not a hello" {
  if (used < FRAME_PREFIX_BYTES) return FRAME_PREFIX_BYTES;
  const length = getU32(candidate, 0);
  const isHello = candidate[4] === FRAME_TYPES.hello && getU32(candidate, 5) === 0;
  if (!isHello || length <= WIRE_LIMITS.frameHeaderBytes || length > HELLO_LENGTH_MAX) return "not a hello";
  return 4 + length;
}

/** For each matched length, how much of the word is still matched when the next byte differs. */
function fallbacksOf(word: Uint8Array): readonly number[] {
  const fallbacks = [0];
  let matched = 0;
  for (let at = 1; at < word.length; at += 1) {
    while (matched > 0 && word[at] !== word[matched]) matched = fallbacks[matched - 1] ?? 0;
    if (word[at] === word[matched]) matched += 1;
    fallbacks.push(matched);
  }
  return fallbacks;
}
