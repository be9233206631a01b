import {
  LEDGER_TABLE_NAMES,
  LEDGER_TABLES,
  LEDGER_VERSION,
  type LedgerTable,
  type LedgerTableRow,
} from "@capsem/api";
import { isLedgerTable, LEDGER_COLUMNS, type LedgerColumn } from "@capsem/api/ledger-row";
import { ledgerFailure } from "./error.ts";
import { CACHE_KIB, LEDGER_LIMITS } from "./limits.ts";
import { type Database, Databases, rollBack } from "./sqlite.ts";

export type Column = LedgerColumn;

/** The columns of each table, in the order in which rows bring them and hashes go over them. */
export const TABLES: readonly LedgerTable[] = LEDGER_TABLE_NAMES;
export const COLUMNS = LEDGER_COLUMNS;
export const isTable = isLedgerTable;

/** Where a column's value is in a row without the table's name. */
export function columnIndex(table: LedgerTable, column: string): number {
  return COLUMNS[table].findIndex(({ name }) => name === column);
}

const SQL_TYPES: Readonly<Record<Column["kind"], string>> = {
  text: "TEXT",
  json: "TEXT",
  int: "INTEGER",
  flag: "INTEGER",
  time: "INTEGER",
  real: "REAL",
};

/** Columns of what is no table of evidence, and is verified like one. */
export const CHAIN_TABLE_COLUMNS: readonly Column[] = own(
  "n int, tbl text, row_id int, producer text, generation text, seq int, row_hash text, head text",
);
export const HEAD_TABLE_COLUMNS: readonly Column[] = own("n int, head text, signature text, key_id text");
export const META_TABLE_COLUMNS: readonly Column[] = own("name text, value text");

function own(columns: string): Column[] {
  return columns.split(", ").map((column) => {
    const [name = "", kind] = column.split(" ");
    return { name, kind: kind as Column["kind"], isOptional: false, since: 1, isLater: false };
  });
}

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

export interface Index {
  readonly name: string;
  readonly table: LedgerTable;
  readonly columns: readonly string[];
  /** Which rows it has; null: all. */
  readonly where: string | null;
}

export const INDEXES: readonly Index[] = [
  index("decisions_by_event", "security_decision_events", ["event_id"]),
  index("decisions_by_type", "security_decision_events", ["type"]),
  index("decisions_by_time", "security_decision_events", ["time_ms"]),
  index("decisions_by_rule", "security_decision_events", ["rule_id"]),
  index("decisions_refused", "security_decision_events", ["action", "type"], "action <> 'allow'"),
  index("rules_by_event", "security_rule_events", ["event_id"]),
  index("rules_notable", "security_rule_events", ["row_id"], NOTABLE_RULE),
  ...(
    ["exec_events", "fs_events", "lifecycle_events", "policy_mutations", "tool_calls", "net_events"] as const
  ).map((table) => index(`${table}_by_event`, table, ["event_id"])),
  ...(
    [
      "security_decision_events",
      "security_ask_events",
      "exec_events",
      "fs_events",
      "lifecycle_events",
      "policy_mutations",
      "tool_calls",
      "net_events",
    ] as const
  ).map((table) => index(`${table}_by_trace`, table, ["trace_id"], "trace_id IS NOT NULL")),
  index("bodies_by_hash", "event_body_blobs", ["hash"]),
];

function index(
  name: string,
  table: LedgerTable,
  columns: readonly string[],
  where: string | null = null,
): Index {
  return { name, table, columns, where };
}

function createIndex({ name, table, columns, where }: Index): string {
  const rows = where === null ? "" : ` WHERE ${where}`;
  return `CREATE INDEX ledger.${name} ON ${table} (${columns.join(", ")})${rows}`;
}

/** The columns that a table has in a version; of one that came later those of its stand-in. */
export function columnsOf(table: LedgerTable, version: number): readonly Column[] {
  return sinceOf(table) > version ? COLUMNS[table] : COLUMNS[table].filter(({ since }) => since <= version);
}

/** `row_id` is the row's number in the chain. */
function createTable(table: LedgerTable, version: number): string {
  const columns = columnsOf(table, version).map(columnSql);
  return `CREATE TABLE ledger.${table} (row_id INTEGER PRIMARY KEY, ${columns.join(", ")})`;
}

function columnSql({ name, kind, isOptional }: Column): string {
  return `"${name}" ${SQL_TYPES[kind]}${isOptional ? "" : " NOT NULL"}`;
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

/** What a ledger of a version has. */
function statements(version: number): string[] {
  const has = (table: LedgerTable) => sinceOf(table) <= version;
  return [
    ...TABLES.filter(has).map((table) => createTable(table, version)),
    ...OWN_TABLES,
    ...INDEXES.filter(({ table }) => has(table)).map(createIndex),
  ];
}

function sinceOf(table: LedgerTable): number {
  const { since = 1 }: LedgerTableRow = LEDGER_TABLES[table];
  return since;
}

/** Makes the tables of a new ledger, all or none. */
export function createSchema(db: Database, ledger: string, createdMs: number): void {
  inTransaction(db, () => {
    for (const statement of statements(LEDGER_VERSION)) db.exec(statement);
    const meta = db.prepare("INSERT INTO ledger_meta (name, value) VALUES (?, ?)");
    meta.run("version", String(LEDGER_VERSION));
    meta.run("ledger", ledger);
    meta.run("created_ms", String(createdMs));
  });
}

/**
 * Gives an older ledger the tables and columns that are new, all or none. Nothing that is written is touched, so no copy
 * is made before: what fails leaves the file as it was.
 */
export function migrateSchema(db: Database, from: number): void {
  const there = TABLES.filter((table) => sinceOf(table) <= from);
  const old = new Set([...statements(from), ...there.map((table) => createTable(table, LEDGER_VERSION))]);
  inTransaction(db, () => {
    for (const table of there) {
      for (const column of COLUMNS[table]) {
        if (column.since > from) db.exec(`ALTER TABLE ledger.${table} ADD COLUMN ${columnSql(column)}`);
      }
    }
    for (const statement of statements(LEDGER_VERSION)) if (!old.has(statement)) db.exec(statement);
    db.prepare("UPDATE ledger_meta SET value = ? WHERE name = ?").run(String(LEDGER_VERSION), "version");
  });
}

/** For a reader: tables that an older ledger has not got yet are empty, and beside its file. */
export function standInTables(db: Database, version: number): void {
  // The file itself was opened to be read only.
  db.exec("PRAGMA query_only = OFF");
  for (const table of TABLES) {
    // A connection is used for one ledger after the other.
    db.exec(`DROP TABLE IF EXISTS temp.${table}`);
    if (sinceOf(table) <= version) continue;
    db.exec(createTable(table, LEDGER_VERSION).replace("ledger.", "temp."));
    for (const index of INDEXES) {
      if (index.table === table) db.exec(createIndex(index).replace("ledger.", "temp."));
    }
  }
  db.exec("PRAGMA query_only = ON");
}

function inTransaction(db: Database, work: () => void): void {
  db.exec("BEGIN IMMEDIATE");
  try {
    work();
    db.exec("COMMIT");
  } catch (thrown) {
    rollBack(db);
    throw thrown;
  }
}

/** Its version; null: the database is empty. Throws `ledger_broken` for what is no ledger, another one, or a later one. */
export function checkSchema(db: Database, ledger: string): number | null {
  const broken = (state: string) =>
    ledgerFailure("ledger_broken", `Cannot open ledger "${ledger}": ${state}`);
  if (db.prepare("SELECT 1 FROM ledger.sqlite_schema LIMIT 1").get() === undefined) return null;
  const value = db.prepare("SELECT value FROM ledger_meta WHERE name = ?");
  const version = Number(value.get("version")?.[0]);
  if (!Number.isInteger(version) || version < 1 || version > LEDGER_VERSION) {
    const words = Number.isInteger(version) ? `version ${version}` : "no version that can be read";
    throw broken(`it has ${words}, this program knows ${LEDGER_VERSION}`);
  }
  const named = value.get("ledger")?.[0];
  if (named !== ledger) throw broken(`it is the ledger of "${named}"`);
  const fault = partsFault(db, version);
  if (fault !== null) throw broken(fault);
  return version;
}

/** What its file has that a ledger of its version has not, the other way round, or in other words; null for nothing. */
function partsFault(db: Database, version: number): string | null {
  const wanted = new Map(
    statements(version).map((statement) => {
      const text = statement.replace("ledger.", "");
      return [/^CREATE \w+ (\w+)/.exec(text)?.[1] ?? "", text];
    }),
  );
  const parts = db.prepare("SELECT type, name, sql FROM ledger.sqlite_schema").iterate();
  for (const [type, name, sql] of parts) {
    const text = wanted.get(String(name));
    if (text === undefined) return `it has the ${type} "${name}", which is not ours`;
    if (text !== sql) return `its ${type} "${name}" is not made as ours is`;
    wanted.delete(String(name));
  }
  const [missing] = wanted.keys();
  return missing === undefined ? null : `"${missing}" is gone from it`;
}
