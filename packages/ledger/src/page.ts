import { ledgerFailure } from "./error.ts";
import { LEDGER_LIMITS } from "./limits.ts";

/** Entries in order, each with the number of the row in the chain that it stands for. */
export interface Placed<E> {
  readonly n: number;
  readonly entry: E;
}

/**
 * A page's entries and its cursor: no more rows and bytes than a page may have, but at least one entry. The cursor is
 * the last entry's number in the chain, so rows that come later move nothing.
 */
export function pageOf<E>(placed: Iterable<Placed<E>>, limit: number): { entries: E[]; next: string | null } {
  const entries: E[] = [];
  let bytes = 0;
  let last = 0;
  for (const { n, entry } of placed) {
    const size = Buffer.byteLength(JSON.stringify(entry)) + 1;
    const isFull =
      entries.length >= limit || (entries.length > 0 && bytes + size > LEDGER_LIMITS.pageBytesMax);
    if (isFull) return { entries, next: `n${last}` };
    entries.push(entry);
    bytes += size;
    last = n;
  }
  return { entries, next: null };
}

/** Null: from the beginning. Throws `invalid_input`. */
export function parseCursor(cursor: string | undefined): number | null {
  if (cursor === undefined) return null;
  const n = /^n([1-9][0-9]{0,15})$/.exec(cursor)?.[1];
  if (n === undefined) throw ledgerFailure("invalid_input", "Cannot go on from cursor: it is none of ours");
  return Number(n);
}

export function checkLimit(limit: number): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= LEDGER_LIMITS.pageRowsMax) return limit;
  throw ledgerFailure(
    "invalid_input",
    `Cannot read ${limit} rows: a page has 1 to ${LEDGER_LIMITS.pageRowsMax}`,
  );
}
