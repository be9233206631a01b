import { CHAIN_COLUMNS, chainRow } from "./chain.ts";
import { ledgerFailure } from "./error.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import type { LedgerReader } from "./reader.ts";
import { columnsOf, isTable } from "./schema.ts";
import type { Cell } from "./sqlite.ts";

/** A row of the chain as a producer is told of it. */
export interface ChainedRow {
  readonly hash: string;
  /** Producer, generation, number, table, columns; null: it is of the one who asks, who knows it. */
  readonly row: Cell[] | null;
}

/**
 * Rows after one up to another, in the order of the chain, as many as one answer holds and at least one: what a producer
 * has to know before it takes a head for the continuation of the last one that it knows.
 */
export function readChainRows(
  reader: LedgerReader,
  producer: string,
  { after, until }: { readonly after: number; readonly until: number },
): ChainedRow[] {
  return reader.atOnce(() => {
    const rows: ChainedRow[] = [];
    let characters = 0;
    const chain = reader
      .prepare(`SELECT ${CHAIN_COLUMNS} FROM ledger_chain WHERE n > ? AND n <= ? ORDER BY n LIMIT ?`)
      .all(after, until, LEDGER_LIMITS.chainRowsMax);
    for (const cells of chain) {
      const found = chainRow(cells);
      const { producer: of, generation, seq, table, hash } = found;
      const row =
        of === producer ? null : [of, generation, seq, table, ...cellsOf(reader, table, found.rowId)];
      for (const cell of row ?? []) if (typeof cell === "string") characters += cell.length;
      if (rows.length > 0 && characters > LEDGER_LIMITS.chainCharactersMax) break;
      rows.push({ hash, row });
    }
    return rows;
  });
}

function cellsOf(reader: LedgerReader, table: string, rowId: number): Cell[] {
  if (isTable(table)) {
    const columns = columnsOf(table, reader.version)
      .map(({ name }) => `"${name}"`)
      .join(", ");
    const found = reader.prepare(`SELECT ${columns} FROM ${table} WHERE row_id = ?`).get(rowId);
    if (found !== undefined) return found;
  }
  throw ledgerFailure(
    "ledger_broken",
    `Cannot read ledger "${reader.ledger}": row ${rowId} of its chain is gone`,
  );
}
