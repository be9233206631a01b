import { CREDENTIAL_LIMITS } from "./limits.ts";

/** Part of a text that is a form of the secret that `ref` stands for. */
export interface Hit {
  readonly start: number;
  readonly end: number;
  readonly ref: string;
}

const HEAD = CREDENTIAL_LIMITS.formCharactersMin;
const BLOCK = 3;
const TABLE_BITS = 16;

/** Where in the sorted forms those stand that begin with the same characters. */
interface Range {
  readonly first: number;
  readonly end: number;
}

/**
 * Looks for many texts at once (Wu and Manber, "A fast algorithm for multi-pattern searching"): a table says of the last
 * three characters of a window how far it may be moved before a form can begin in it. Most windows move by several
 * characters. Where one cannot, the longest form that begins there is found by halves. No form is longer than a bound,
 * so that no text and no secret makes it more than linear in the text, times the logarithm of what is looked for.
 */
export class Matcher {
  readonly #shifts = new Uint8Array(1 << TABLE_BITS).fill(HEAD - BLOCK + 1);
  /** By the hash of their first characters. */
  readonly #ranges = new Map<number, Range>();
  readonly #sorted: readonly string[];
  readonly #refs: readonly string[];
  /** Of each form the longest other one that it begins with; -1 for none. */
  readonly #shorter: Int32Array;

  /** `forms` maps each form, of at least `formCharactersMin` characters, to its reference. */
  constructor(forms: ReadonlyMap<string, string>) {
    this.#sorted = [...forms.keys()].sort();
    this.#refs = this.#sorted.map((form) => forms.get(form) ?? "");
    this.#shorter = new Int32Array(this.#sorted.length);
    for (const [at, form] of this.#sorted.entries()) {
      this.#shorter[at] = this.#beginning(form, at - 1);
      const head = headAt(form, 0);
      this.#ranges.set(head, { first: this.#ranges.get(head)?.first ?? at, end: at + 1 });
      for (let from = 0; from + BLOCK <= HEAD; from += 1) {
        const block = blockAt(form, from);
        this.#shifts[block] = Math.min(this.#shifts[block] ?? 0, HEAD - BLOCK - from);
      }
    }
  }

  /** In the order of their starts; they may overlap. */
  find(text: string): Hit[] {
    const hits: Hit[] = [];
    const shifts = this.#shifts;
    const last = text.length - HEAD;
    for (let at = 0; at <= last; ) {
      const shift = shifts[blockAt(text, at + HEAD - BLOCK)] ?? 0;
      if (shift > 0) {
        at += shift;
        continue;
      }
      const range = this.#ranges.get(headAt(text, at));
      if (range !== undefined) {
        const ahead = text.slice(at, at + CREDENTIAL_LIMITS.pieceCharactersMax);
        const form = this.#beginning(ahead, this.#upTo(ahead, range));
        if (form >= 0) {
          hits.push({ start: at, end: at + (this.#sorted[form] ?? "").length, ref: this.#refs[form] ?? "" });
        }
      }
      at += 1;
    }
    return hits;
  }

  /**
   * Where the end of the text begins that is the beginning of a form, and not all of it; its length without one. A
   * shorter end than `charactersMin` is none.
   */
  tailStart(text: string, charactersMin: number = CREDENTIAL_LIMITS.cutTailCharactersMin): number {
    const first = Math.max(0, text.length - CREDENTIAL_LIMITS.pieceCharactersMax + 1);
    const last = text.length - charactersMin;
    for (let at = first; at <= last; at += 1) {
      // Where it is as long as a head, only the heads of forms begin any.
      if (at + HEAD <= text.length && !this.#ranges.has(headAt(text, at))) continue;
      const tail = text.slice(at);
      // The first form after it: those that begin with it follow one another.
      const next = this.#upTo(tail, { first: 0, end: this.#sorted.length }) + 1;
      if (this.#sorted[next]?.startsWith(tail) === true) return at;
    }
    return text.length;
  }

  /**
   * The longest form that the text begins with, where `at` is the last form not after the text: all that it begins with
   * are those that this one begins with. -1 for none.
   */
  #beginning(text: string, at: number): number {
    let form = at;
    while (form >= 0 && !text.startsWith(this.#sorted[form] ?? "")) form = this.#shorter[form] ?? -1;
    return form;
  }

  /** The last form of the range that is not after the text. */
  #upTo(text: string, { first, end }: Range): number {
    let [low, high] = [first, end];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#sorted[middle] ?? "") <= text) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}

function blockAt(text: string, at: number): number {
  const first = Math.imul(text.charCodeAt(at), 0x9e3779b1);
  const second = Math.imul(text.charCodeAt(at + 1), 0x85ebca6b);
  return (first ^ second ^ Math.imul(text.charCodeAt(at + 2), 0xc2b2ae35)) >>> (32 - TABLE_BITS);
}

function headAt(text: string, start: number): number {
  let hash = 0;
  for (let at = start; at < start + HEAD; at += 1) hash = (Math.imul(hash, 31) + text.charCodeAt(at)) | 0;
  return hash;
}
