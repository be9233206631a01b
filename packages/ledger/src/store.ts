import { mkdirSync, statSync } from "node:fs";
import { LEDGER_VERSION, type LedgerHead } from "@capsem/api";
import { BODY_TABLE, genesisHead, LEDGER_PRODUCER, nextHead, rowHash } from "./chain.ts";
import { ledgerFailure, systemFailure } from "./error.ts";
import { type Inserts, prepareInserts } from "./inserts.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { DECISIONS_TABLE, interruptedRow, type OpenAct, OpenActs } from "./open-acts.ts";
import { ledgerPaths } from "./paths.ts";
import { areEssential } from "./reserve.ts";
import type { Row } from "./row.ts";
import { COLUMNS, checkSchema, createSchema, migrateSchema, prepareWriter } from "./schema.ts";
import { type Database, type Databases, rollBack, type Statement } from "./sqlite.ts";
import { storedEvent } from "./stored-event.ts";
import { tailFault } from "./tail.ts";
import { named } from "./words.ts";

/** Rows of one producer, checked and hashed; `first` is the number of the first of them in its generation. */
export interface Append {
  readonly producer: string;
  readonly generation: string;
  readonly first: number;
  readonly rows: readonly Row[];
  readonly hashes: readonly string[];
}

/** Why not a row of an append was taken, or null. */
export type Refusal = Error | null;

const DECISION_NAMES = COLUMNS[DECISIONS_TABLE].map(({ name }) => name);

/** The one writer of one ledger. Every change is a transaction; one that fails leaves everything as it was. */
export class LedgerStore {
  readonly ledger: string;
  readonly #path: string;
  readonly #db: Database;
  readonly #inserts: Inserts;
  readonly #pageCount: Statement;
  readonly #pageBytes: number;
  #n = 0;
  #head = "";
  /** Last numbers, by producer and generation. */
  #seqs = new Map<string, number>();
  #open: OpenActs;
  /** Beyond it the writer checkpoints; raised while readers hold the log. */
  #walBytesNext: number = LEDGER_LIMITS.walBytesMax;

  /** Near the quota a log that was held is tried again when it is as long as this. */
  #walBytesTried = 0;

  /** Opens or makes a ledger. Throws `ledger_broken` for one that is damaged, `disk_full` and `ledger_failed`. */
  constructor(databases: Databases, root: string, ledger: string, nowMs: number) {
    const paths = ledgerPaths(root, ledger);
    this.ledger = ledger;
    this.#path = paths.database;
    try {
      mkdirSync(paths.folder, { recursive: true, mode: 0o700 });
    } catch (cause) {
      throw systemFailure(`make the folder of ledger "${ledger}"`, cause);
    }
    this.#db = databases.open(paths.database, `ledger "${ledger}"`);
    try {
      prepareWriter(this.#db);
      const version = checkSchema(this.#db, ledger);
      if (version === null) createSchema(this.#db, ledger, nowMs);
      else if (version < LEDGER_VERSION) migrateSchema(this.#db, version);
      this.#inserts = prepareInserts(this.#db);
      this.#pageCount = this.#db.prepare("PRAGMA ledger.page_count");
      this.#pageBytes = Number(this.#db.prepare("PRAGMA ledger.page_size").get()?.[0]);
      this.#open = this.#load();
    } catch (thrown) {
      this.#db.close();
      throw thrown;
    }
  }

  get head(): LedgerHead {
    return { rows: this.#n, head: this.#head };
  }

  get openActs(): number {
    return this.#open.size;
  }

  /** The database and its log. */
  bytes(): number {
    return this.#databaseBytes() + this.#walBytes();
  }

  /**
   * What counts to the quota: a log that only waits to be written back is no reason to be full, also where somebody
   * reads it, or another thread writes it back at this moment. One that is held for longer counts with what it has
   * grown beyond its length. Between commits only.
   */
  bytesFor(bytesMax: number): number {
    const walBytes = this.#walBytes();
    if (this.#databaseBytes() + walBytes < bytesMax || walBytes === 0) return this.bytes();
    const isFull = this.#countedBytes() >= bytesMax;
    if (!isFull && walBytes < this.#walBytesTried) return this.#countedBytes();
    const isDone = this.#restartLog("TRUNCATE");
    // Each try costs the one who is waited for some time, and all who append: it is not made at each commit.
    this.#walBytesTried = isDone ? 0 : walBytes + LEDGER_LIMITS.walRetryBytes;
    return isDone ? this.bytes() : this.#countedBytes();
  }

  /** The head after a row of the chain; null when there is none of this number. */
  headAt(n: number): string | null {
    if (n === 0) return genesisHead(this.ledger);
    const found = this.#db.prepare("SELECT head FROM ledger_chain WHERE n = ?").get(n);
    return found === undefined ? null : String(found[0]);
  }

  /** The last number that is stored of a producer's generation. */
  lastSeq(producer: string, generation: string): number {
    return this.#seqs.get(seqKey(producer, generation)) ?? 0;
  }

  /**
   * One transaction over all that are taken; those that are refused leave no trace. Throws `disk_full` and `ledger_failed`, and
   * then nothing is stored.
   */
  append(appends: readonly Append[], bytesMax: number): Refusal[] {
    const bytes = this.bytesFor(bytesMax);
    return this.#transaction(() =>
      appends.map((append) => {
        const last = this.lastSeq(append.producer, append.generation);
        if (append.first > last + 1) return gap(this.ledger, append, last);
        const rows = append.rows.slice(last + 1 - append.first);
        const hasRoom =
          bytes < bytesMax || (bytes < bytesMax + LEDGER_LIMITS.reserveBytes && this.#areEssential(rows));
        if (rows.length > 0 && !hasRoom) return full(this.ledger, bytes, bytesMax);
        this.#insertAll({
          ...append,
          first: last + 1,
          rows,
          hashes: append.hashes.slice(last + 1 - append.first),
        });
        return null;
      }),
    );
  }

  /** Ends the acts of a producer that nobody else will end: of all generations but `generation`. How many there were. */
  interrupt(producer: string, generation: string | null, nowMs: number): number {
    const acts = this.#open.ofOthers(producer, generation);
    if (acts.length === 0) return 0;
    this.#transaction(() => {
      const first = this.lastSeq(LEDGER_PRODUCER.producer, LEDGER_PRODUCER.generation) + 1;
      const rows = acts.flatMap((act) => this.#interruptedRow(act, nowMs));
      const hashes = rows.map((row, index) => rowHash({ ...LEDGER_PRODUCER, seq: first + index }, row));
      this.#insertAll({ ...LEDGER_PRODUCER, first, rows, hashes });
      for (const { eventId } of acts) this.#open.forget(eventId);
    });
    return acts.length;
  }

  /** Keeps a head that was signed outside. Throws `invalid_input` for one that is not of this chain. */
  sign(head: LedgerHead, signature: string, keyId: string): void {
    if (this.headAt(head.rows) !== head.head) {
      throw ledgerFailure(
        "invalid_input",
        `Cannot sign ledger "${this.ledger}": the head after row ${head.rows} is another one`,
      );
    }
    this.#transaction(() => {
      this.#db
        .prepare("INSERT OR REPLACE INTO ledger_heads (n, head, signature, key_id) VALUES (?, ?, ?, ?)")
        .run(head.rows, head.head, signature, keyId);
      this.#db
        .prepare(
          `DELETE FROM ledger_heads WHERE n NOT IN
             (SELECT n FROM ledger_heads ORDER BY n DESC LIMIT ${LEDGER_LIMITS.headsMax})`,
        )
        .run();
    });
  }

  /** The log begins anew when it is too large and no reader holds it. Between commits only. */
  checkpoint(): void {
    if (this.#walBytes() < this.#walBytesNext) return;
    const isDone = this.#restartLog("RESTART");
    // What is written back stays in the file until it is written over, so its size says nothing for a while.
    this.#walBytesNext = isDone ? LEDGER_LIMITS.walBytesMax : this.#walBytes() + LEDGER_LIMITS.walBytesMax;
  }

  /** The log is written back first: a reader that closes after us could not. */
  close(): void {
    try {
      this.#restartLog("TRUNCATE");
    } finally {
      this.#db.close();
    }
  }

  #areEssential(rows: readonly Row[]): boolean {
    return areEssential(rows, this.#open);
  }

  /** Whether it began anew; a reader may be in its way, or the thread that writes logs back. */
  #restartLog(how: "RESTART" | "TRUNCATE"): boolean {
    this.#db.exec(`PRAGMA busy_timeout = ${LEDGER_LIMITS.checkpointBusyTimeoutMs}`);
    try {
      return this.#db.prepare(`PRAGMA ledger.wal_checkpoint(${how})`).get()?.[0] === 0;
    } finally {
      this.#db.exec(`PRAGMA busy_timeout = ${LEDGER_LIMITS.busyTimeoutMs}`);
    }
  }

  #countedBytes(): number {
    return this.#databaseBytes() + Math.max(0, this.#walBytes() - LEDGER_LIMITS.walBytesMax);
  }

  /** With the pages that are in the log alone. */
  #databaseBytes(): number {
    return Number(this.#pageCount.get()?.[0] ?? 0) * this.#pageBytes;
  }

  #walBytes(): number {
    return statSync(`${this.#path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  }

  #load(): OpenActs {
    const [n, head] = this.#db.prepare("SELECT n, head FROM ledger_chain ORDER BY n DESC LIMIT 1").get() ?? [
      0,
      genesisHead(this.ledger),
    ];
    this.#n = Number(n);
    this.#head = String(head);
    const fault = tailFault(this.#db, this.ledger, this.head);
    if (fault !== null) throw ledgerFailure("ledger_broken", `Cannot open ledger "${this.ledger}": ${fault}`);
    const seqs = this.#db.prepare("SELECT producer, generation, seq FROM ledger_producers").all();
    this.#seqs = new Map(
      seqs.map(([producer, generation, seq]) => [seqKey(String(producer), String(generation)), Number(seq)]),
    );
    return new OpenActs(this.#db);
  }

  #transaction<T>(work: () => T): T {
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      const result = work();
      const { addAct, removeAct } = this.#inserts;
      this.#open.store({
        add: (act) => addAct.run(act.eventId, act.table, act.producer, act.generation, act.n),
        remove: (eventId) => removeAct.run(eventId),
      });
      this.#db.exec("COMMIT");
      return result;
    } catch (thrown) {
      this.#rollBack();
      throw thrown;
    }
  }

  /** Whoever holds this store may have to open another one. */
  #rollBack(): void {
    rollBack(this.#db);
    this.#open = this.#load();
  }

  #insertAll({ producer, generation, first, rows, hashes }: Append): void {
    if (rows.length === 0) return;
    const { chain, setProducer } = this.#inserts;
    for (let at = 0; at < rows.length; at++) {
      const row = rows[at] as Row;
      const hash = hashes[at] as string;
      const n = this.#n + 1;
      const head = nextHead(this.#head, hash);
      const rowId = this.#insert(n, row);
      chain.run(n, row[0], rowId, producer, generation, first + at, hash, head);
      this.#open.note(row, n, producer, generation);
      this.#n = n;
      this.#head = head;
    }
    const seq = first + rows.length - 1;
    setProducer.run(producer, generation, seq);
    this.#seqs.set(seqKey(producer, generation), seq);
  }

  /** Answers where the row is: a body that is there already is not stored again. */
  #insert(n: number, row: Row): number {
    const { rows, findBody } = this.#inserts;
    const [table, ...values] = row;
    if (table === BODY_TABLE) {
      const found = findBody.get(...values.slice(0, -1));
      if (found !== undefined) return Number(found[0]);
    }
    rows.get(table)?.run(n, ...values);
    return n;
  }

  #interruptedRow(act: OpenAct, nowMs: number): Row[] {
    const found = this.#db.prepare(`SELECT * FROM ${DECISIONS_TABLE} WHERE row_id = ?`).get(act.n);
    if (found === undefined) return [];
    const decision = found.slice(1);
    const { fields } = storedEvent(this.#db, LEDGER_VERSION, named(DECISION_NAMES, decision));
    return [interruptedRow(act, decision, fields, nowMs)];
  }
}

function seqKey(producer: string, generation: string): string {
  return JSON.stringify([producer, generation]);
}

function gap(ledger: string, { first }: Append, last: number): Error {
  const message = `Cannot append to ledger "${ledger}": row ${first} comes after row ${last}, rows between are missing`;
  return ledgerFailure("ledger_gap", message);
}

function full(ledger: string, bytes: number, bytesMax: number): Error {
  return ledgerFailure(
    "ledger_full",
    `Cannot append to ledger "${ledger}": it holds ${bytes} of ${bytesMax} bytes`,
  );
}
