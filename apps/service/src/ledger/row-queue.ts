import type { AnyRow } from "../boundary/parts.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import type { Encoded } from "./row-code.ts";

/** A row, and whether it is the last of those that were taken together. */
interface Waiting {
  readonly made: Encoded;
  readonly isLast: boolean;
}

/** What all queues hold together, counted in one place. */
export interface Weight {
  characters: number;
}

/** Rows of one ledger from their taking to their commit, in order. */
export class RowQueue {
  /** Of all rows ever taken, and of those that are committed: a flush waits for a number. */
  taken = 0;
  done = 0;
  readonly #all: Weight;
  #rows: (Waiting | undefined)[] = [];
  /** Rows before this one have left; they are cut off now and then, so that leaving costs nothing. */
  #first = 0;
  #characters = 0;

  constructor(all: Weight) {
    this.#all = all;
  }

  get length(): number {
    return this.#rows.length - this.#first;
  }

  /** The share of what may wait, in rows or characters, of this ledger or of all. */
  get load(): number {
    const { rowsWaitingMax, charactersWaitingMax, charactersOfAllMax } = LEDGER_LIMITS;
    const own = Math.max(this.length / rowsWaitingMax, this.#characters / charactersWaitingMax);
    return Math.max(own, this.#all.characters / charactersOfAllMax);
  }

  /** Takes all or none. False: too much waits. */
  push(rows: readonly Encoded[], areEnds: boolean): boolean {
    let characters = 0;
    for (const made of rows) characters += made.characters;
    if (!this.#hasRoom(rows.length, characters, areEnds)) return false;
    const last = rows.at(-1);
    for (const made of rows) this.#rows.push({ made, isLast: made === last });
    this.#weigh(characters);
    this.taken += rows.length;
    return true;
  }

  /**
   * The first rows that make one call: at least one, however large. `isAlone`: only those that were taken together with
   * the first.
   */
  gather(isAlone: boolean): Encoded[] {
    const rows: Encoded[] = [];
    let bytes = 0;
    for (let at = this.#first; at < this.#rows.length && rows.length < LEDGER_LIMITS.batchRowsMax; at++) {
      const waiting = this.#rows[at];
      if (waiting === undefined) break;
      bytes += waiting.made.bytes;
      if (rows.length > 0 && bytes > LEDGER_LIMITS.batchBytesMax) break;
      rows.push(waiting.made);
      if (isAlone && waiting.isLast) break;
    }
    return rows;
  }

  /** The first rows have left: they are committed, or were given up. */
  drop(count: number): AnyRow[] {
    const end = Math.min(this.#first + count, this.#rows.length);
    const left: AnyRow[] = [];
    let characters = 0;
    for (let at = this.#first; at < end; at++) {
      const waiting = this.#rows[at];
      this.#rows[at] = undefined;
      if (waiting === undefined) continue;
      left.push(waiting.made.row);
      characters += waiting.made.characters;
    }
    this.#first = end;
    this.done += left.length;
    this.#weigh(-characters);
    if (this.#first > 1_024 && this.#first * 2 > this.#rows.length) {
      this.#rows = this.#rows.slice(this.#first);
      this.#first = 0;
    }
    return left;
  }

  #hasRoom(rows: number, characters: number, areEnds: boolean): boolean {
    const more = areEnds ? 1 : 0;
    return (
      this.length + rows <= LEDGER_LIMITS.rowsWaitingMax + more * LEDGER_LIMITS.endRowsMax &&
      this.#characters + characters <=
        LEDGER_LIMITS.charactersWaitingMax + more * LEDGER_LIMITS.endCharactersMax &&
      this.#all.characters + characters <=
        LEDGER_LIMITS.charactersOfAllMax + more * LEDGER_LIMITS.endCharactersMax
    );
  }

  #weigh(characters: number): void {
    this.#characters += characters;
    this.#all.characters += characters;
  }
}
