import type { LedgerTable } from "@capsem/api";
import { ledgerBodyFault, ledgerRowFault } from "@capsem/api/ledger-row";
import { ledgerFailure } from "./error.ts";
import type { Cell } from "./sqlite.ts";

/** A row that its table can hold: the table's name, then its columns in order. */
export type Row = readonly [LedgerTable, ...Cell[]];

/** Throws `bad_row`, which names the column. The row itself is returned, not a copy. */
export function parseRow(row: unknown): Row {
  const fault = ledgerRowFault(row) ?? ledgerBodyFault(row as Row);
  if (fault !== null) throw ledgerFailure("bad_row", `Cannot append row: ${fault}`);
  return row as Row;
}
