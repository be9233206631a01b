/** Hashes of a ledger (docs/ledger-format.md): the ledger chains its rows with them, the service follows the chain. */
import { hash } from "node:crypto";
import { LEDGER_TABLES, type LedgerTableRow } from "./ledger-table.ts";

export type Cell = string | number | null;

/** Who wrote a row, and its number among that producer's rows of one generation. */
export interface Origin {
  readonly producer: string;
  readonly generation: string;
  readonly seq: number;
}

export const BODY_TABLE = "event_body_blobs";
/** Columns of a stored body before the body itself. */
const BODY_FACTS = 4;

/** The rows that a ledger writes itself, numbered through all of its life. */
export const LEDGER_PRODUCER = { producer: "ledger", generation: "ledger" } as const;

/** SHA-256 of UTF-8 text, in lower-case hex. */
export function sha256(text: string): string {
  return hash("sha256", text);
}

/** How rows are hashed and chained. New tables change nothing of it, so an older ledger goes on with its chain. */
const CHAIN_VERSION = 1;

/** The head before the first row. */
export function genesisHead(ledger: string): string {
  return sha256(`capsem-ledger ${CHAIN_VERSION} ${ledger}`);
}

/**
 * Hash of a row that starts with its table's name: over who wrote it and its columns in order. A stored body is left
 * out, since its column `hash` stands for it.
 */
export function rowHash(origin: Origin, row: readonly Cell[]): string {
  return rowTextHash(origin, rowText(row));
}

/** The same of the row's text. */
export function rowTextHash({ producer, generation, seq }: Origin, text: string): string {
  // The beginning of one list, and what follows the first bracket of the other.
  return sha256(`${JSON.stringify([producer, generation, seq]).slice(0, -1)},${text.slice(1)}`);
}

/** What is hashed of a row, as JSON: the table's name and its columns, without a stored body. */
export function rowText(row: readonly Cell[]): string {
  return JSON.stringify(hashedCells(row));
}

/**
 * A stored body is left out, and so is a column that came later than its table where it is null: a row of an older
 * version has the hash that it always had.
 */
export function hashedCells(row: readonly Cell[]): readonly Cell[] {
  const [table] = row;
  if (table === BODY_TABLE) return row.slice(0, 1 + BODY_FACTS);
  const sizes = SIZES.get(table);
  if (sizes === undefined) return row;
  let end = row.length;
  while (end > sizes.first && row[end - 1] === null) end -= 1;
  return end === row.length ? row : row.slice(0, end);
}

/** The other way round: a row as its table has it now. Anything else stays as it is. */
export function fillLater(row: unknown[]): void {
  const sizes = SIZES.get(row[0]);
  if (sizes === undefined || row.length < sizes.first) return;
  while (row.length < sizes.now) row.push(null);
}

/** Of tables that have got columns: cells of a row in their first version and now, with the table's name. */
const SIZES: ReadonlyMap<unknown, { readonly first: number; readonly now: number }> = new Map(
  Object.entries(LEDGER_TABLES).flatMap(([table, { columns, later = {} }]: [string, LedgerTableRow]) => {
    const now = 1 + Object.keys(columns).length;
    const count = Object.keys(later).length;
    return count === 0 ? [] : [[table, { first: now - count, now }]];
  }),
);

/** Both in lower-case hex, one behind the other. */
export function nextHead(head: string, hashOfRow: string): string {
  return sha256(head + hashOfRow);
}
