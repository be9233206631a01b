const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
const BODY = "[a-z2-7]{16}";

export const VM_ID_PATTERN: RegExp = new RegExp(`^vm_${BODY}$`);
export const JOB_ID_PATTERN: RegExp = new RegExp(`^job_${BODY}$`);
export const NAME_PATTERN: RegExp = /^[a-z][a-z0-9-]{0,62}$/;

/** `prefix_` + 16 base32 characters (80 random bits). `random` returns that many unpredictable bytes. */
export function newId(prefix: string, random: (bytes: number) => Uint8Array): string {
  let body = "";
  for (const byte of random(16)) body += ALPHABET[byte & 31];
  return `${prefix}_${body}`;
}

const EVENT_ID_DIGITS = 12;
const EVENT_IDS = 2 ** 48;

/**
 * Ids of events: 12 hex digits, in order from a place that nobody can foresee. In order, because a ledger finds rows by
 * them: ids that follow each other lie side by side in its indexes, where random ones change a page each. The ids of two
 * makers meet only where their ranges do.
 */
export class EventIds {
  readonly #random: (bytes: number) => Uint8Array;
  #next: number | null = null;

  constructor(random: (bytes: number) => Uint8Array) {
    this.#random = random;
  }

  next(): string {
    this.#next ??= this.#random(EVENT_ID_DIGITS / 2).reduce((sum, byte) => sum * 256 + byte, 0);
    const id = this.#next.toString(16).padStart(EVENT_ID_DIGITS, "0");
    this.#next = (this.#next + 1) % EVENT_IDS;
    return id;
  }
}
