import {
  type ColumnType,
  LEDGER_TABLE_NAMES,
  LEDGER_TABLES,
  LEDGER_VERSION,
  type LedgerTable,
} from "@capsem/api";
import { ledgerFailure } from "./error.ts";
import { CACHE_KIB, LEDGER_LIMITS } from "./limits.ts";
import { type Database, Databases } from "./sqlite.ts";

export interface Column {
  readonly name: string;
  readonly kind: "text" | "int" | "real" | "json" | "flag" | "time";
  readonly isOptional: boolean;
}

/** The columns of each table, in the order in which rows bring them and hashes go over them. */
export const TABLES: readonly LedgerTable[] = LEDGER_TABLE_NAMES;
export const COLUMNS: Readonly<Record<LedgerTable, readonly Column[]>> = {
  security_decision_events: columnsOf("security_decision_events"),
  security_rule_events: columnsOf("security_rule_events"),
  security_ask_events: columnsOf("security_ask_events"),
  exec_events: columnsOf("exec_events"),
  fs_events: columnsOf("fs_events"),
  lifecycle_events: columnsOf("lifecycle_events"),
  policy_mutations: columnsOf("policy_mutations"),
  event_body_blobs: columnsOf("event_body_blobs"),
};

export function isTable(name: unknown): name is LedgerTable {
  return typeof name === "string" && Object.hasOwn(COLUMNS, name);
}

/** Where a column's value is in a row without the table's name. */
export function columnIndex(table: LedgerTable, column: string): number {
  return COLUMNS[table].findIndex(({ name }) => name === column);
}

function columnsOf(table: LedgerTable): Column[] {
  const columns: Readonly<Record<string, ColumnType>> = LEDGER_TABLES[table].columns;
  return Object.entries(columns).map(([name, type]) => ({
    name,
    kind: type.replace("?", "") as Column["kind"],
    isOptional: type.endsWith("?"),
  }));
}

const SQL_TYPES: Readonly<Record<Column["kind"], string>> = {
  text: "TEXT",
  json: "TEXT",
  int: "INTEGER",
  flag: "INTEGER",
  time: "INTEGER",
  real: "REAL",
};

/** Tables of the chain and of what is kept beside it. */
const OWN_TABLES = [
  `CREATE TABLE ledger.ledger_chain (
    n INTEGER PRIMARY KEY, tbl TEXT NOT NULL, row_id INTEGER NOT NULL, producer TEXT NOT NULL,
    generation TEXT NOT NULL, seq INTEGER NOT NULL, row_hash TEXT NOT NULL, head TEXT NOT NULL)`,
  `CREATE TABLE ledger.ledger_heads (
    n INTEGER PRIMARY KEY, head TEXT NOT NULL, signature TEXT NOT NULL, key_id TEXT NOT NULL)`,
  "CREATE TABLE ledger.ledger_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
  // The last number of each generation: what comes again after a crash is known by it.
  `CREATE TABLE ledger.ledger_producers (
    producer TEXT NOT NULL, generation TEXT NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (producer, generation)) WITHOUT ROWID`,
  // Decisions whose act has not ended. Not evidence: it follows from the rows.
  `CREATE TABLE ledger.open_acts (
    event_id TEXT PRIMARY KEY, tbl TEXT NOT NULL, producer TEXT NOT NULL, generation TEXT NOT NULL,
    n INTEGER NOT NULL) WITHOUT ROWID`,
];

/** What rule rows are worth a line of the timeline. The planner knows the index by these very words. */
export const NOTABLE_RULE = "(detection <> 'none' OR (action = 'block' AND has_won = 1))";

const INDEXES = [
  "CREATE INDEX ledger.decisions_by_event ON security_decision_events (event_id)",
  "CREATE INDEX ledger.decisions_by_type ON security_decision_events (type)",
  "CREATE INDEX ledger.decisions_by_time ON security_decision_events (time_ms)",
  "CREATE INDEX ledger.decisions_by_rule ON security_decision_events (rule_id)",
  "CREATE INDEX ledger.decisions_refused ON security_decision_events (action, type) WHERE action <> 'allow'",
  "CREATE INDEX ledger.rules_by_event ON security_rule_events (event_id)",
  `CREATE INDEX ledger.rules_notable ON security_rule_events (row_id) WHERE ${NOTABLE_RULE}`,
  ...(["exec_events", "fs_events", "lifecycle_events", "policy_mutations"] as const).map(
    (table) => `CREATE INDEX ledger.${table}_by_event ON ${table} (event_id)`,
  ),
  ...(
    [
      "security_decision_events",
      "security_ask_events",
      "exec_events",
      "fs_events",
      "lifecycle_events",
      "policy_mutations",
    ] as const
  ).map((table) => `CREATE INDEX ledger.${table}_by_trace ON ${table} (trace_id) WHERE trace_id IS NOT NULL`),
  "CREATE INDEX ledger.bodies_by_hash ON event_body_blobs (hash)",
];

/** `row_id` is the row's number in the chain. */
function createTable(table: LedgerTable): string {
  const columns = COLUMNS[table].map(
    ({ name, kind, isOptional }) => `"${name}" ${SQL_TYPES[kind]}${isOptional ? "" : " NOT NULL"}`,
  );
  return `CREATE TABLE ledger.${table} (row_id INTEGER PRIMARY KEY, ${columns.join(", ")})`;
}

const EVERY = [
  `PRAGMA busy_timeout = ${LEDGER_LIMITS.busyTimeoutMs}`,
  // A confined process has no folder for temporary files.
  "PRAGMA temp_store = MEMORY",
  // What stands in a file that somebody else wrote is data.
  "PRAGMA trusted_schema = OFF",
];

/** The connections of a thread that writes. */
export function writerDatabases(): Databases {
  // The writer decides when: in the middle of a commit it would be the tail of every append.
  return new Databases({ readOnly: false, prepare: [...EVERY, "PRAGMA wal_autocheckpoint = 0"] });
}

export function readerDatabases(): Databases {
  return new Databases({ readOnly: true, prepare: [...EVERY, "PRAGMA query_only = ON"] });
}

/** Before anything else on a file that is written. */
export function prepareWriter(db: Database): void {
  db.exec("PRAGMA ledger.journal_mode = WAL");
  db.exec("PRAGMA ledger.synchronous = NORMAL");
  db.exec(`PRAGMA ledger.cache_size = -${CACHE_KIB.writer}`);
}

export function prepareReader(db: Database): void {
  db.exec(`PRAGMA ledger.cache_size = -${CACHE_KIB.reader}`);
}

/** Makes the tables of a new ledger, all or none. */
export function createSchema(db: Database, ledger: string, createdMs: number): void {
  db.exec("BEGIN IMMEDIATE");
  try {
    for (const statement of [...TABLES.map(createTable), ...OWN_TABLES, ...INDEXES]) db.exec(statement);
    const meta = db.prepare("INSERT INTO ledger_meta (name, value) VALUES (?, ?)");
    meta.run("version", String(LEDGER_VERSION));
    meta.run("ledger", ledger);
    meta.run("created_ms", String(createdMs));
    db.exec("COMMIT");
  } catch (thrown) {
    db.exec("ROLLBACK");
    throw thrown;
  }
}

/** False: the database is empty. Throws `ledger_broken` for what is no ledger, another one, or of a later version. */
export function checkSchema(db: Database, ledger: string): boolean {
  const [parts, active] = db
    .prepare("SELECT count(*), count(*) FILTER (WHERE type IN ('trigger', 'view')) FROM ledger.sqlite_schema")
    .get() ?? [0, 0];
  if (parts === 0) return false;
  if (active !== 0) {
    throw ledgerFailure(
      "ledger_broken",
      `Cannot open ledger "${ledger}": it has triggers or views, which are not ours`,
    );
  }
  const value = db.prepare("SELECT value FROM ledger_meta WHERE name = ?");
  const version = Number(value.get("version")?.[0]);
  if (version !== LEDGER_VERSION) {
    const words = Number.isInteger(version) ? `version ${version}` : "no version that can be read";
    throw ledgerFailure(
      "ledger_broken",
      `Cannot open ledger "${ledger}": it has ${words}, this program knows ${LEDGER_VERSION}`,
    );
  }
  const named = value.get("ledger")?.[0];
  if (named === ledger) return true;
  throw ledgerFailure("ledger_broken", `Cannot open ledger "${ledger}": it is the ledger of "${named}"`);
}
