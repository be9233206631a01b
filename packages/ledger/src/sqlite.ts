/** The only importer of SQLite: databases with arrays for rows, texts whole, and our own failures. */
import type { Cell } from "@capsem/api/ledger-chain";
import { Failure, messageOf } from "@capsem/base";
import { DatabaseSync } from "@photostructure/sqlite";
import { type LedgerFailureKind, ledgerFailure } from "./error.ts";

export type { Cell } from "@capsem/api/ledger-chain";

/** As the library binds and answers them: a text with U+0000 travels as its bytes. */
type Bound = Cell | Uint8Array;
type Connection = InstanceType<typeof DatabaseSync>;
type Compiled = ReturnType<Connection["prepare"]>;

/** Compiled once for each connection; two that are read side by side need two texts. */
export interface Statement {
  run(...values: readonly Cell[]): void;
  get(...values: readonly Cell[]): Cell[] | undefined;
  all(...values: readonly Cell[]): Cell[][];
  /** Holds a read of the database open until it is through or its `return` is called. */
  iterate(...values: readonly Cell[]): IterableIterator<Cell[]>;
}

/** One file. Its schema is called `ledger` where a statement has to say: a new table, an index, a pragma. */
export interface Database {
  exec(sql: string): void;
  prepare(sql: string): Statement;
  /** No statement is under way. The files are closed when it returns. */
  close(): void;
}

export interface DatabasesOptions {
  readonly readOnly: boolean;
  /** Statements for each new connection. */
  readonly prepare: readonly string[];
}

/**
 * Opens files as databases of one kind, for one thread. The library keeps a file open until the garbage collector has
 * found the last of its statements, so a file is attached to a connection without one of its own, and detached again:
 * connections and their statements are used over and over.
 */
export class Databases {
  readonly #options: DatabasesOptions;
  readonly #free: Slot[] = [];

  constructor(options: DatabasesOptions) {
    this.#options = options;
  }

  /**
   * `subject` stands in failures: `ledger_broken` for a file that is damaged or no database, `disk_full`, and
   * `ledger_failed` for all else that the system refuses. The caller closes it.
   */
  open(path: string, subject: string): Database {
    const slot = this.#free.pop() ?? new Slot(this.#options.prepare);
    try {
      slot.attach(
        this.#options.readOnly
          ? `file:${encodeURI(path).replace(/[?#]/g, encodeURIComponent)}?mode=ro`
          : path,
        subject,
      );
    } catch (thrown) {
      this.#free.push(slot);
      throw thrown;
    }
    let isOpen = true;
    return {
      exec: (sql) => slot.exec(sql),
      prepare: (sql) => slot.prepare(sql),
      close: () => {
        if (!isOpen) return;
        isOpen = false;
        if (slot.detach()) this.#free.push(slot);
      },
    };
  }
}

/** After a full disk SQLite may have rolled back by itself: then nothing is left to do, and the first failure counts. */
export function rollBack(db: Pick<Database, "exec">): void {
  try {
    db.exec("ROLLBACK");
  } catch (thrown) {
    if (!(thrown instanceof Error && /no transaction/.test(thrown.message))) throw thrown;
  }
}

/** Loads the binary and everything that it uses: a process that seals itself has to, before. */
export function warmSqlite(): void {
  const slot = new Slot([]);
  slot.attach(":memory:", "a database in memory");
  slot.exec("CREATE TABLE ledger.warm (n INTEGER PRIMARY KEY, text TEXT)");
  for (const value of ["a", null]) slot.prepare("INSERT INTO warm (text) VALUES (?)").run(value);
  slot.prepare("SELECT * FROM warm").all();
  slot.detach();
}

/** A connection, and the statements that it has compiled. */
class Slot {
  readonly #connection: Connection;
  readonly #statements = new Map<string, Statement>();
  #subject = "a database";

  constructor(prepare: readonly string[]) {
    this.#connection = new DatabaseSync(":memory:");
    for (const sql of prepare) this.#connection.exec(sql);
  }

  attach(path: string, subject: string): void {
    this.#subject = subject;
    this.prepare("ATTACH ? AS ledger").run(path);
  }

  /** False: something still reads. The connection is given up then, and its files close when nothing does. */
  detach(): boolean {
    try {
      if (this.#connection.isTransaction) this.#connection.exec("ROLLBACK");
      this.#connection.exec("DETACH ledger");
      return true;
    } catch {
      this.#connection.close();
      return false;
    }
  }

  exec(sql: string): void {
    this.guard(() => this.#connection.exec(sql));
  }

  prepare(sql: string): Statement {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const compiled = this.guard(() => this.#connection.prepare(sql));
    compiled.setReturnArrays(true);
    const statement = statementOf(compiled, this);
    this.#statements.set(sql, statement);
    return statement;
  }

  guard<T>(work: () => T): T {
    try {
      return work();
    } catch (thrown) {
      throw this.failure(thrown);
    }
  }

  failure(thrown: unknown): Error {
    return failureOf(this.#subject, thrown);
  }
}

function statementOf(compiled: Compiled, slot: Slot): Statement {
  return {
    run(...values) {
      bind(values);
      try {
        compiled.run(...values);
      } catch (thrown) {
        throw slot.failure(thrown);
      }
    },
    get(...values) {
      bind(values);
      const row = slot.guard(() => compiled.get(...values) as Bound[] | undefined);
      return row === undefined ? undefined : cellsOf(row);
    },
    all(...values) {
      bind(values);
      const rows = slot.guard(() => compiled.all(...values) as Bound[][]);
      for (const row of rows) cellsOf(row);
      return rows as Cell[][];
    },
    iterate(...values) {
      bind(values);
      return iterated(compiled, values, slot);
    },
  };
}

function* iterated(compiled: Compiled, values: readonly Bound[], slot: Slot): IterableIterator<Cell[]> {
  const rows = slot.guard(() => compiled.iterate(...values)) as IterableIterator<Bound[]>;
  try {
    for (;;) {
      const { done, value } = slot.guard(() => rows.next());
      if (done === true) return;
      yield cellsOf(value);
    }
  } finally {
    rows.return?.();
  }
}

/** In its own list: the library ends a text at its first U+0000, and keeps bytes as they are. */
function bind(values: readonly Cell[]): void {
  const bound = values as Bound[];
  for (let at = 0; at < bound.length; at++) {
    const value = bound[at];
    if (typeof value === "string" && value.includes("\0")) bound[at] = Buffer.from(value);
  }
}

function cellsOf(row: Bound[]): Cell[] {
  for (let at = 0; at < row.length; at++) {
    const value = row[at];
    if (value instanceof Uint8Array) row[at] = Buffer.from(value).toString("utf8");
  }
  return row as Cell[];
}

/** SQLITE_ERROR is a table or column that is not there, SQLITE_CORRUPT and SQLITE_NOTADB a file that was damaged. */
const BROKEN: readonly number[] = [1, 11, 26];

function failureOf(subject: string, thrown: unknown): Error {
  if (thrown instanceof Failure || !(thrown instanceof Error)) return thrown as Error;
  const code = codeOf(thrown);
  if (code === null) return thrown;
  return ledgerFailure(kindOf(code), `Cannot use ${subject}: ${wordsOf(thrown)}`, { cause: thrown });
}

/** SQLITE_FULL, and SQLITE_IOERR_SHMSIZE: the log's index could not grow. */
const FULL = { primary: 13, extended: 10 + 19 * 256 };

function kindOf(code: number): LedgerFailureKind {
  const primary = code & 0xff;
  if (BROKEN.includes(primary)) return "ledger_broken";
  return primary === FULL.primary || code === FULL.extended ? "disk_full" : "ledger_failed";
}

/** The extended result code; a number that no JavaScript number holds is nothing that we wrote. */
function codeOf(thrown: Error): number | null {
  if ("errcode" in thrown && typeof thrown.errcode === "number") return thrown.errcode;
  return /too large|out of range/.test(messageOf(thrown)) ? 11 : null;
}

function wordsOf(thrown: Error): string {
  const words = "errstr" in thrown && typeof thrown.errstr === "string" ? thrown.errstr : "";
  const message = messageOf(thrown);
  return words === "" || words === message ? message : `${words} (${message})`;
}
