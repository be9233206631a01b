import { COLUMNS, TABLES } from "./schema.ts";
import type { Database, Statement } from "./sqlite.ts";

/** Every statement that a writer needs, compiled once for each connection. */
export interface Inserts {
  readonly rows: ReadonlyMap<string, Statement>;
  readonly chain: Statement;
  readonly findBody: Statement;
  readonly setProducer: Statement;
  readonly addAct: Statement;
  readonly removeAct: Statement;
}

export function prepareInserts(db: Database): Inserts {
  return {
    rows: new Map(
      TABLES.map((table) => [
        table,
        db.prepare(`INSERT INTO ${table} VALUES (?${", ?".repeat(COLUMNS[table].length)})`),
      ]),
    ),
    chain: db.prepare("INSERT INTO ledger_chain VALUES (?, ?, ?, ?, ?, ?, ?, ?)"),
    findBody: db.prepare(
      `SELECT row_id FROM event_body_blobs
       WHERE hash = ? AND kind = ? AND original_bytes = ? AND is_truncated = ? LIMIT 1`,
    ),
    setProducer: db.prepare(
      `INSERT INTO ledger_producers (producer, generation, seq) VALUES (?, ?, ?)
       ON CONFLICT DO UPDATE SET seq = excluded.seq`,
    ),
    addAct: db.prepare(
      "INSERT OR REPLACE INTO open_acts (event_id, tbl, producer, generation, n) VALUES (?, ?, ?, ?, ?)",
    ),
    removeAct: db.prepare("DELETE FROM open_acts WHERE event_id = ?"),
  };
}
