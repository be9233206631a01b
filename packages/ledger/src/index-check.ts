import type { LedgerReader } from "./reader.ts";
import { INDEXES, type Index } from "./schema.ts";

/*
 * Readers find rows by indexes, and the chain knows nothing of those: a row that its index lacks is in the ledger and on
 * no page. Every row is looked for in every index, and an index with as many entries as rows has no other ones.
 */

/** The first row after `from`, up to `end`, that an index lacks. */
export function unindexedRow(
  reader: LedgerReader,
  from: number,
  end: number,
): { readonly index: Index; readonly row: number } | null {
  for (const index of INDEXES) {
    const found = reader.prepare(missingSql(index)).get(from, end);
    if (found !== undefined) return { index, row: Number(found[0]) };
  }
  return null;
}

/** Whether an index has more entries, or fewer, than its table has rows for it. */
export function isIndexOff(reader: LedgerReader, index: Index): boolean {
  const { name, table, where } = index;
  const rows = where === null ? "" : ` WHERE ${where}`;
  const count = (how: string) => reader.number(`SELECT count(*) FROM ${table} ${how}${rows}`);
  return count(`INDEXED BY ${name}`) !== count("NOT INDEXED");
}

function missingSql({ name, table, columns, where }: Index): string {
  const only = where === null ? "" : `AND ${where}`;
  const keys = columns
    .filter((column) => column !== "row_id")
    .map((column) => `b."${column}" = a."${column}"`);
  const same = [...keys, "b.row_id = a.row_id"].join(" AND ");
  return `SELECT a.row_id FROM ${table} AS a NOT INDEXED
    WHERE a.row_id > ? AND a.row_id <= ? ${only}
      AND NOT EXISTS (SELECT 1 FROM ${table} AS b INDEXED BY ${name} WHERE ${same} ${only}) LIMIT 1`;
}
