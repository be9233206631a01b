import { EGRESS_LIMITS } from "./limits.ts";

const HEAD = EGRESS_LIMITS.secretCharactersMin;
const BLOCK = 3;
const TABLE_BITS = 16;

/** Bytes from `start` up to `end`. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/**
 * Looks for many texts at once (Wu and Manber, "A fast algorithm for multi-pattern searching"): a table says of the last
 * three bytes of a window how far it may be moved before a text can begin in it. Most windows move by several bytes.
 */
export class SecretMatcher {
  readonly #shifts = new Uint8Array(1 << TABLE_BITS).fill(HEAD - BLOCK + 1);
  /** By the hash of their first bytes; longer ones first. */
  readonly #byHead = new Map<number, Buffer[]>();
  /** In their order as latin1: what begins with the same follows one another. */
  readonly #sorted: readonly string[];
  readonly #firsts = new Uint8Array(256);
  readonly #longest: number;

  private constructor(texts: readonly string[]) {
    this.#sorted = [...texts].sort();
    this.#longest = Math.max(...texts.map(({ length }) => length));
    for (const text of [...texts].sort((a, b) => b.length - a.length)) {
      const bytes = Buffer.from(text, "latin1");
      const head = headAt(bytes, 0);
      this.#byHead.set(head, [...(this.#byHead.get(head) ?? []), bytes]);
      this.#firsts[bytes[0] ?? 0] = 1;
      for (let from = 0; from + BLOCK <= HEAD; from += 1) {
        const block = blockAt(bytes, from);
        this.#shifts[block] = Math.min(this.#shifts[block] ?? 0, HEAD - BLOCK - from);
      }
    }
  }

  /** Null where there is nothing to look for. */
  static of(secrets: readonly string[]): SecretMatcher | null {
    const texts = new Set<string>();
    for (const secret of secrets) {
      for (const text of [secret, Buffer.from(secret, "utf8").toString("latin1")]) {
        if (text.length >= HEAD) texts.add(text);
      }
    }
    return texts.size === 0 ? null : new SecretMatcher([...texts]);
  }

  /** In the order of their starts; they may overlap. */
  find(bytes: Buffer): Span[] {
    const spans: Span[] = [];
    const shifts = this.#shifts;
    const last = bytes.length - HEAD;
    for (let at = 0; at <= last; ) {
      const shift = shifts[blockAt(bytes, at + HEAD - BLOCK)] ?? 0;
      if (shift > 0) {
        at += shift;
        continue;
      }
      const length = this.#lengthAt(bytes, at);
      if (length > 0) spans.push({ start: at, end: at + length });
      at += 1;
    }
    return spans;
  }

  /** Where an end begins that some text begins with, and does not end with; the length where there is none. */
  tailStart(bytes: Buffer): number {
    const from = Math.max(0, bytes.length - this.#longest + 1);
    const tail = bytes.toString("latin1", from);
    for (let at = 0; at < tail.length; at += 1) {
      if (this.#firsts[tail.charCodeAt(at)] === 1 && this.#isBeginning(tail.slice(at))) return from + at;
    }
    return bytes.length;
  }

  /** Of the longest text that stands there; 0: none. */
  #lengthAt(bytes: Buffer, at: number): number {
    for (const text of this.#byHead.get(headAt(bytes, at)) ?? []) {
      const end = at + text.length;
      if (end <= bytes.length && bytes.compare(text, 0, text.length, at, end) === 0) return text.length;
    }
    return 0;
  }

  /** Of a longer text: the first one behind it in the order is one, if any is. */
  #isBeginning(text: string): boolean {
    let [low, high] = [0, this.#sorted.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#sorted[middle] ?? "") <= text) low = middle + 1;
      else high = middle;
    }
    return this.#sorted[low]?.startsWith(text) === true;
  }
}

function blockAt(bytes: Buffer, at: number): number {
  const first = Math.imul(bytes[at] ?? 0, 0x9e3779b1);
  const second = Math.imul(bytes[at + 1] ?? 0, 0x85ebca6b);
  return (first ^ second ^ Math.imul(bytes[at + 2] ?? 0, 0xc2b2ae35)) >>> (32 - TABLE_BITS);
}

function headAt(bytes: Buffer, start: number): number {
  let hash = 0;
  for (let at = start; at < start + HEAD; at += 1) hash = (Math.imul(hash, 31) + (bytes[at] ?? 0)) | 0;
  return hash;
}
