import { existsSync, statSync } from "node:fs";
import { ledgerFailure } from "./error.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { idOf, type LedgerPaths, ledgerPaths } from "./paths.ts";
import { checkSchema, prepareReader, readerDatabases, standInTables } from "./schema.ts";
import type { Cell, Database, Databases, Statement } from "./sqlite.ts";

/** A ledger that is only read. */
export class LedgerReader implements Database {
  /** As it was asked for. */
  readonly name: string;
  /** Whose it is: the same, but for one that was set aside. */
  readonly ledger: string;
  /** Of its file: an older one has not all columns. */
  readonly version: number;
  readonly #paths: LedgerPaths;
  readonly #db: Database;

  /** Throws `ledger_not_found`, `ledger_broken`, `ledger_failed`. */
  constructor(databases: Databases, root: string, name: string) {
    this.name = name;
    this.#paths = ledgerPaths(root, name);
    this.ledger = idOf(name);
    if (!existsSync(this.#paths.database)) {
      throw ledgerFailure("ledger_not_found", `Cannot find ledger "${name}": there is none`);
    }
    this.#db = databases.open(this.#paths.database, `ledger "${name}"`);
    try {
      prepareReader(this.#db);
      const version = checkSchema(this.#db, this.ledger);
      if (version === null) {
        throw ledgerFailure("ledger_broken", `Cannot read ledger "${name}": it is empty`);
      }
      this.version = version;
      standInTables(this.#db, version);
    } catch (thrown) {
      this.#db.close();
      throw thrown;
    }
  }

  prepare(sql: string): Statement {
    return this.#db.prepare(sql);
  }

  exec(sql: string): void {
    this.#db.exec(sql);
  }

  /** All statements of `work` see the same moment. Not across an await or a yield: the log could not begin anew. */
  atOnce<T>(work: () => T): T {
    this.#db.exec("BEGIN");
    try {
      return work();
    } finally {
      this.#db.exec("COMMIT");
    }
  }

  number(sql: string, ...values: readonly Cell[]): number {
    return Number(this.prepare(sql).get(...values)?.[0] ?? 0);
  }

  /** Number of the last row. */
  rows(): number {
    return this.number("SELECT max(n) FROM ledger_chain");
  }

  /** The database and its log. */
  bytes(): number {
    const { database } = this.#paths;
    return [database, `${database}-wal`]
      .map((path) => statSync(path, { throwIfNoEntry: false })?.size ?? 0)
      .reduce((sum, size) => sum + size, 0);
  }

  close(): void {
    this.#db.close();
  }
}

/** Readers by ledger; the one unused for longest is closed for another. */
export class ReaderPool {
  readonly #root: string;
  readonly #databases = readerDatabases();
  readonly #readers = new Map<string, LedgerReader>();

  constructor(root: string) {
    this.#root = root;
  }

  get(ledger: string): LedgerReader {
    const known = this.#readers.get(ledger);
    this.#readers.delete(ledger);
    const reader = known ?? this.open(ledger);
    this.#readers.set(ledger, reader);
    const [oldest] = this.#readers.keys();
    if (this.#readers.size > LEDGER_LIMITS.readersMax && oldest !== undefined) this.release(oldest);
    return reader;
  }

  /** One of the caller's own, which closes it: for what takes long, or must not drive out what is read often. */
  open(ledger: string): LedgerReader {
    return new LedgerReader(this.#databases, this.#root, ledger);
  }

  /** Before its files are moved, and after a read that failed. Slices under way fail loudly. */
  release(ledger: string): void {
    const reader = this.#readers.get(ledger);
    this.#readers.delete(ledger);
    reader?.close();
  }

  close(): void {
    for (const ledger of [...this.#readers.keys()]) this.release(ledger);
  }
}
