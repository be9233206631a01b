import type { ChainFault, LedgerHead, VerifyResult } from "@capsem/api";
import { Failure, messageOf } from "@capsem/base";
import {
  BODY_TABLE,
  CHAIN_COLUMNS,
  type ChainRow,
  chainRow,
  genesisHead,
  nextHead,
  rowHash,
  sha256,
} from "./chain.ts";
import { isIndexOff, unindexedRow } from "./index-check.ts";
import { KeptHeads, parsePublicKey, type SignedHead } from "./kept-heads.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { idOf } from "./paths.ts";
import type { LedgerReader } from "./reader.ts";
import { CHAIN_TABLE_COLUMNS, HEAD_TABLE_COLUMNS, INDEXES, META_TABLE_COLUMNS, TABLES } from "./schema.ts";
import type { Sliced } from "./slices.ts";
import type { Cell } from "./sqlite.ts";
import { mayBeOdd, oddColumn, oddSql } from "./stored-cells.ts";
import { TableWalk } from "./table-walk.ts";

export interface VerifyOptions {
  /** What was kept out of the ledger's reach: rows and head that it had once. */
  readonly checkpoint: LedgerHead | null;
  /** SPKI DER in base64. Null: signatures are not looked at. */
  readonly publicKey: string | null;
}

/**
 * Walks a ledger from its first row to the last there is now, and names the first that is not what was written. What
 * it finds in the file is its answer, never thrown; throws `invalid_input` for a key that is none, and `ledger_failed`
 * where the system does not let it read.
 */
export function* verifyChain(reader: LedgerReader, options: VerifyOptions): Sliced<VerifyResult> {
  const key = options.publicKey === null ? null : parsePublicKey(options.publicKey);
  const walk = new ChainWalk(reader);
  try {
    const kept = new KeptHeads(reader.ledger, options.checkpoint, signedHeads(reader), key);
    yield* walk.run(kept);
    return walk.result(null);
  } catch (thrown) {
    if (thrown instanceof Found) return walk.result(thrown.fault);
    if (!(thrown instanceof Failure) || thrown.kind !== "ledger_broken") throw thrown;
    return walk.result(walk.faultAt("unreadable", thrown.message));
  }
}

/** The result for a file that cannot even be opened as a ledger. */
export function unreadableLedger(ledger: string, thrown: unknown): VerifyResult {
  const fault: ChainFault = {
    kind: "unreadable",
    row: 1,
    table: null,
    event_id: null,
    message: messageOf(thrown),
  };
  return { ...NOTHING, vm_id: ledger, head: genesisHead(idOf(ledger)), fault };
}

/** The result for files that are gone, of which it is known outside that they were there. */
export function goneLedger(ledger: string, { rows }: LedgerHead): VerifyResult {
  const message = `its files are gone, and it had ${rows} rows when that was kept outside`;
  const fault: ChainFault = { kind: "cut", row: 1, table: null, event_id: null, message };
  return { ...NOTHING, vm_id: ledger, head: genesisHead(idOf(ledger)), fault };
}

const NOTHING = { is_whole: false, rows: 0, signed_rows: 0 };

/** A signed head that its ledger keeps; the oldest first. */
export function signedHeads(reader: LedgerReader): SignedHead[] {
  return reader
    .prepare("SELECT n, head, signature, key_id FROM ledger_heads ORDER BY n")
    .all()
    .map(([rows, head, signature, keyId]) => ({
      rows: Number(rows),
      head: String(head),
      signature: String(signature),
      keyId: String(keyId),
    }));
}

/** A fault that ends the walk. */
class Found extends Error {
  readonly fault: ChainFault;

  constructor(fault: ChainFault) {
    super(fault.message);
    this.fault = fault;
  }
}

class ChainWalk {
  readonly #reader: LedgerReader;
  /** Last numbers, by producer, then by generation. */
  readonly #seqs = new Map<string, Map<string, number>>();
  #kept: KeptHeads | null = null;
  #n = 0;
  #head: string;

  constructor(reader: LedgerReader) {
    this.#reader = reader;
    this.#head = genesisHead(reader.ledger);
  }

  *run(kept: KeptHeads): Sliced<void> {
    this.#kept = kept;
    this.#checkBeside();
    this.#checkKept(0, this.#head);
    const end = this.#reader.rows();
    while (this.#n < end) {
      this.#slice(Math.min(end, this.#n + LEDGER_LIMITS.sliceRows));
      yield;
    }
    for (const index of INDEXES) {
      if (this.#reader.atOnce(() => isIndexOff(this.#reader, index))) {
        throw this.#found(
          "altered",
          `the index "${index.name}" is not of the rows that there are`,
          index.table,
        );
      }
      yield;
    }
    this.#checkEnd();
  }

  result(fault: ChainFault | null): VerifyResult {
    return {
      vm_id: this.#reader.name,
      is_whole: fault === null,
      rows: this.#n,
      signed_rows: this.#kept?.signedRows ?? 0,
      head: this.#head,
      fault,
    };
  }

  faultAt(
    kind: ChainFault["kind"],
    message: string,
    table: string | null = null,
    eventId: Cell = null,
    row: number = this.#n + 1,
  ): ChainFault {
    return { kind, row, table, event_id: eventId === null ? null : String(eventId), message };
  }

  /** Rows up to `end`, all of one moment. */
  #slice(end: number): void {
    this.#reader.atOnce(() => {
      const from = this.#n;
      const tables = new Map<string, TableWalk>(
        TABLES.map((table) => [table, new TableWalk(this.#reader, table, from, end)]),
      );
      try {
        const chain = this.#reader
          .prepare(
            `SELECT ${CHAIN_COLUMNS}, ${oddSql(CHAIN_TABLE_COLUMNS)} FROM ledger_chain
             WHERE n > ? AND n <= ? ORDER BY n`,
          )
          .iterate(from, end);
        for (const row of chain) {
          this.#checkChainCells(row);
          this.#check(chainRow(row), tables);
        }
        if (this.#n < end) throw this.#gone();
        for (const [table, walk] of tables) this.#checkExtra(table, walk.extraBefore(end + 1));
        this.#checkIndexes(from, end);
      } finally {
        for (const walk of tables.values()) walk.close();
      }
    });
  }

  #check(row: ChainRow, tables: ReadonlyMap<string, TableWalk>): void {
    const { n, table, rowId } = row;
    if (n !== this.#n + 1) throw this.#gone();
    const walk = tables.get(table);
    if (walk === undefined) throw this.#found("altered", `row ${n} is of a table that there is not`, table);
    if (rowId > n || rowId < 1 || (rowId < n && table !== BODY_TABLE)) {
      throw this.#found("reordered", `row ${n} of the chain stands for row ${rowId} of ${table}`, table);
    }
    this.#checkExtra(table, walk.extraBefore(n));
    const taken = rowId === n ? walk.take(n) : null;
    const values = rowId === n ? taken?.values : walk.earlier(rowId);
    if (values == null) throw this.#found("missing", `row ${n} is gone from ${table}`, table);
    this.#checkValues(row, values);
    if (taken?.odd != null) {
      const eventId = table === BODY_TABLE ? null : (values[0] ?? null);
      const message = `the ${taken.odd} of row ${n} of ${table} is not stored as it was written`;
      throw this.#found("altered", message, table, eventId);
    }
    this.#checkOrder(row, values);
    this.#n = n;
    this.#head = row.head;
  }

  #checkChainCells(row: readonly Cell[]): void {
    const values = row.slice(0, -1);
    if (!mayBeOdd(row.at(-1) ?? null, values)) return;
    const place = { table: "ledger_chain", key: "n", columns: CHAIN_TABLE_COLUMNS };
    const odd = oddColumn(this.#reader, place, row[0] ?? null, values);
    if (odd === null) return;
    throw this.#found("altered", `the ${odd} of row ${row[0]} of the chain is not stored as it was written`);
  }

  #checkIndexes(from: number, end: number): void {
    const found = unindexedRow(this.#reader, from, end);
    if (found === null) return;
    const { index, row } = found;
    const message = `row ${row} of ${index.table} is not in the index "${index.name}"`;
    throw new Found(this.faultAt("altered", message, index.table, null, row));
  }

  /** What is kept beside the chain: rows before the first, signed heads, and what the ledger says of itself. */
  #checkBeside(): void {
    const early = this.#reader.prepare("SELECT n FROM ledger_chain WHERE n < 1 LIMIT 1").get();
    if (early !== undefined)
      throw this.#found("altered", `the chain has a row ${early[0]}, before the first`);
    for (const [table, key, columns, kind] of [
      ["ledger_heads", "n", HEAD_TABLE_COLUMNS, "unsigned"],
      ["ledger_meta", "name", META_TABLE_COLUMNS, "unreadable"],
    ] as const) {
      const names = columns.map(({ name }) => name).join(", ");
      for (const values of this.#reader.prepare(`SELECT ${names} FROM ${table} LIMIT 1000`).all()) {
        const odd = oddColumn(this.#reader, { table, key, columns }, values[0] ?? null, values);
        if (odd === null) continue;
        throw this.#found(kind, `the ${odd} of ${table} "${values[0]}" is not stored as it was written`);
      }
    }
  }

  #checkValues(row: ChainRow, values: readonly Cell[]): void {
    const { n, table } = row;
    const isBody = table === BODY_TABLE;
    const eventId = isBody ? null : (values[0] ?? null);
    if (rowHash(row, [table, ...values]) !== row.hash) {
      throw this.#found("altered", `row ${n} of ${table} is not what was written`, table, eventId);
    }
    // One that is there once is looked at once.
    if (isBody && row.rowId === n && sha256(String(values.at(-1))) !== values[0]) {
      throw this.#found("altered", `the body of row ${n} is not what was written`, table);
    }
  }

  /** Its number among its producer's, and the head that follows from it. */
  #checkOrder(row: ChainRow, values: readonly Cell[]): void {
    const { n, table, producer, generation, seq } = row;
    const eventId = table === BODY_TABLE ? null : (values[0] ?? null);
    const ofProducer = this.#seqs.get(producer) ?? new Map<string, number>();
    const expected = (ofProducer.get(generation) ?? 0) + 1;
    if (seq !== expected) {
      const message = `row ${n} is number ${seq} of ${producer}, which had come to ${expected - 1}`;
      throw this.#found(seq > expected ? "missing" : "reordered", message, table, eventId);
    }
    this.#seqs.set(producer, ofProducer.set(generation, seq));
    const head = nextHead(this.#head, row.hash);
    if (head !== row.head) {
      throw this.#found("reordered", `the head after row ${n} does not follow from it`, table, eventId);
    }
    this.#checkKept(n, head, table, eventId);
  }

  #checkKept(rows: number, head: string, table: string | null = null, eventId: Cell = null): void {
    const fault = this.#kept?.check({ rows, head }) ?? null;
    if (fault !== null) throw new Found(this.faultAt(fault.kind, fault.message, table, eventId, fault.rows));
  }

  /** Rows that no row of the chain stands for, at either end; and heads of rows that are no more. */
  #checkEnd(): void {
    this.#reader.atOnce(() => {
      const rows = this.#reader.rows();
      for (const table of TABLES) {
        const columns = table === BODY_TABLE ? "row_id, NULL" : "row_id, event_id";
        const extra = this.#reader
          .prepare(`SELECT ${columns} FROM ${table} WHERE row_id > ? OR row_id < 1 LIMIT 1`)
          .get(rows);
        if (extra !== undefined) this.#checkExtra(table, { row: Number(extra[0]), first: extra[1] ?? null });
      }
    });
    const fault = this.#kept?.checkEnd(this.#n) ?? null;
    if (fault !== null) throw new Found(this.faultAt(fault.kind, fault.message, null, null, fault.rows));
  }

  #checkExtra(table: string, extra: { readonly row: number; readonly first: Cell } | null): void {
    if (extra === null) return;
    const eventId = table === BODY_TABLE ? null : extra.first;
    throw this.#found("altered", `row ${extra.row} of ${table} stands in no chain`, table, eventId);
  }

  #gone(): Found {
    return this.#found("missing", `row ${this.#n + 1} of the chain is gone`);
  }

  #found(
    kind: ChainFault["kind"],
    message: string,
    table: string | null = null,
    eventId: Cell = null,
  ): Found {
    return new Found(this.faultAt(kind, message, table, eventId));
  }
}
