import type { LedgerTable } from "@capsem/api";
import type { LedgerReader } from "./reader.ts";
import { type Column, columnsOf } from "./schema.ts";
import type { Cell } from "./sqlite.ts";
import { mayBeOdd, oddColumn, oddSql } from "./stored-cells.ts";

/**
 * The rows of one table beside a walk over the chain: a row has the number that it has in the chain, so both go
 * forward together and neither is ever searched.
 */
export class TableWalk {
  readonly #reader: LedgerReader;
  readonly #table: LedgerTable;
  readonly #columns: readonly Column[];
  readonly #rows: IterableIterator<Cell[]>;
  /** Already read and not yet asked for: its number, whether it may be odd, then its columns. */
  #next: Cell[] | null = null;

  /** Rows after `from`, up to `end`. */
  constructor(reader: LedgerReader, table: LedgerTable, from: number, end: number) {
    this.#reader = reader;
    this.#table = table;
    this.#columns = columnsOf(table, reader.version);
    const columns = this.#columns.map(({ name }) => `"${name}"`).join(", ");
    this.#rows = reader
      .prepare(
        `SELECT row_id, ${oddSql(this.#columns)}, ${columns} FROM ${table} WHERE row_id > ? AND row_id <= ? ORDER BY row_id`,
      )
      .iterate(from, end);
    this.#advance();
  }

  /** The first row before `n`, which no row of the chain stands for; null when there is none. */
  extraBefore(n: number): { readonly row: number; readonly first: Cell } | null {
    if (this.#next === null || Number(this.#next[0]) >= n) return null;
    return { row: Number(this.#next[0]), first: this.#next[2] ?? null };
  }

  /** The columns of row `n`, and the first that is not stored as it was written; null when it is not there. */
  take(n: number): { readonly values: Cell[]; readonly odd: string | null } | null {
    const row = this.#next;
    if (row === null || row[0] !== n) return null;
    this.#advance();
    const values = row.slice(2);
    if (!mayBeOdd(row[1] ?? null, values)) return { values, odd: null };
    const place = { table: this.#table, key: "row_id", columns: this.#columns };
    return { values, odd: oddColumn(this.#reader, place, n, values) };
  }

  /** A row that was read before: a body that several rows of the chain stand for. */
  earlier(rowId: number): Cell[] | null {
    const found = this.#reader.prepare(`SELECT * FROM ${this.#table} WHERE row_id = ?`).get(rowId);
    return found === undefined ? null : found.slice(1);
  }

  close(): void {
    this.#rows.return?.();
  }

  #advance(): void {
    const { done, value } = this.#rows.next();
    this.#next = done === true ? null : value;
  }
}
