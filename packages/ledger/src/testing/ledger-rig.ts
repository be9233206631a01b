// A folder of ledgers with its writer, for tests.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { VerifyResult } from "@capsem/api";
import { DatabaseSync } from "@photostructure/sqlite";
import { onTestFinished } from "vitest";
import { rowHash } from "../chain.ts";
import { ledgerPaths } from "../paths.ts";
import { type LedgerReader, ReaderPool } from "../reader.ts";
import { parseRow } from "../row.ts";
import { runSlices } from "../slices.ts";
import { unreadableLedger, type VerifyOptions, verifyChain } from "../verify.ts";
import { LedgerWriter, type Standing } from "../writer.ts";
import type { WireRow } from "./rows.ts";

export const LEDGER = "vm_aaaaaaaaaaaaaaaa";
const MIB = 1024 * 1024;

export class LedgerRig {
  readonly root: string;
  readonly bytesMax: number;
  readonly clock = { now: 1_760_000_000_000 };
  readonly #seqs = new Map<string, number>();
  writer: LedgerWriter;

  constructor(bytesMax: number = 256 * MIB) {
    this.bytesMax = bytesMax;
    this.root = mkdtempSync(join(tmpdir(), "ledger-"));
    this.writer = this.#newWriter();
    onTestFinished(() => {
      this.writer.end();
      rmSync(this.root, { recursive: true, force: true });
    });
  }

  /** As after a crash: another writer, which knows what is on the disk. */
  restart(): void {
    this.writer = this.#newWriter();
  }

  open(generation = "g1", options: { ledger?: string; producer?: string } = {}) {
    const { ledger = LEDGER, producer = "service" } = options;
    return this.writer.open({ ledger, producer, generation, checkpoint: null });
  }

  /** Appends under the next number, or under the one that is said. Throws the refusal. */
  append(rows: readonly WireRow[], options: AppendOptions = {}): Standing {
    const { ledger = LEDGER, producer = "service", generation = "g1" } = options;
    const key = `${ledger} ${producer} ${generation}`;
    const first = options.first ?? (this.#seqs.get(key) ?? 0) + 1;
    const checked = rows.map(parseRow);
    const hashes = checked.map((row, at) => rowHash({ producer, generation, seq: first + at }, row));
    const [end] = this.writer.append([{ ledger, producer, generation, first, rows: checked, hashes }]);
    if (end?.kind !== "taken") throw end?.failure;
    this.#seqs.set(key, first + rows.length - 1);
    return end.standing;
  }

  reader(ledger = LEDGER): LedgerReader {
    const reader = this.#readers().open(ledger);
    onTestFinished(() => {
      reader.close();
    });
    return reader;
  }

  verify(options: Partial<VerifyOptions> = {}, ledger = LEDGER): VerifyResult {
    let reader: LedgerReader;
    try {
      reader = this.#readers().open(ledger);
    } catch (thrown) {
      return unreadableLedger(ledger, thrown);
    }
    try {
      return runSlices(verifyChain(reader, { checkpoint: null, publicKey: null, ...options }));
    } finally {
      reader.close();
    }
  }

  /** What somebody does to the file who is not the ledger. */
  tamper(sql: string, ledger = LEDGER): void {
    this.writer.end();
    const db = new DatabaseSync(ledgerPaths(this.root, ledger).database);
    try {
      db.exec(sql);
    } finally {
      db.close();
    }
  }

  #readers(): ReaderPool {
    return new ReaderPool(this.root);
  }

  #newWriter(): LedgerWriter {
    return new LedgerWriter({ root: this.root, bytesMax: this.bytesMax, now: () => this.clock.now });
  }
}

interface AppendOptions {
  readonly ledger?: string;
  readonly producer?: string;
  readonly generation?: string;
  readonly first?: number;
}
