import { generateKeyPairSync } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { messageOfRows } from "@capsem/api/ledger-row";
import { assert } from "@capsem/base";
import { type LedgerProcess, startLedger } from "../apps/ledger/src/testing/ledger-process.ts";
import { sha256 } from "../packages/ledger/src/chain.ts";
import { act, eventId, row, type WireRow } from "../packages/ledger/src/testing/rows.ts";
import { count } from "./measure.ts";
import { type Figure, figure } from "./statistics.ts";

const LEDGERS = ["a", "b", "c", "d"].map((letter) => `vm_${letter.repeat(16)}`);
const BODY_BYTES = 4_096;
/** A message of a mebibyte, as the service sends them. */
const BODIES_PER_APPEND = 250;
const BURST_ROWS = 4_096;
const PUBLIC_KEY = generateKeyPairSync("ed25519")
  .publicKey.export({ type: "spki", format: "der" })
  .toString("base64");

/** Sends to all ledgers at once, the next append of each when the one before is committed: as the service does. */
class Senders {
  readonly #ledger: LedgerProcess;
  readonly #sent = new Map<string, number>();

  constructor(ledger: LedgerProcess) {
    this.#ledger = ledger;
  }

  async open(): Promise<void> {
    for (const ledger of LEDGERS) {
      await this.#ledger.call("producer", "ledger.open", {
        ledger,
        generation: "g",
        checkpoint: null,
        whole: false,
      });
    }
  }

  /** Rows a second. */
  async send(appends: readonly WireRow[][]): Promise<number> {
    const waiting = [...appends];
    const startedMs = performance.now();
    await Promise.all(LEDGERS.map((ledger) => this.#drain(ledger, waiting)));
    const rows = appends.reduce((sum, each) => sum + each.length, 0);
    return (rows / (performance.now() - startedMs)) * 1_000;
  }

  /** Counts and chains are what was sent, or the figures say nothing. Rows a second of the walk. */
  async prove(): Promise<number> {
    let total = 0;
    const startedMs = performance.now();
    for (const ledger of LEDGERS) {
      const params = { ledger, checkpoint: null, public_key: PUBLIC_KEY };
      const { is_whole, rows, fault } = await this.#ledger.call("reader", "read.verify", params);
      assert(
        is_whole && rows === (this.#sent.get(ledger) ?? 0),
        `${ledger}: ${rows} rows, ${JSON.stringify(fault)}`,
      );
      total += rows;
    }
    return (total / (performance.now() - startedMs)) * 1_000;
  }

  async #drain(ledger: string, waiting: WireRow[][]): Promise<void> {
    for (let rows = waiting.shift(); rows !== undefined; rows = waiting.shift()) {
      const sent = this.#sent.get(ledger) ?? 0;
      const params = { ledger, generation: "g", first: sent + 1, ...messageOfRows(rows) };
      await this.#ledger.call("producer", "ledger.append", params);
      this.#sent.set(ledger, sent + rows.length);
    }
  }
}

let number = 0;

function bodyRow(): WireRow {
  number += 1;
  const body = String(number)
    .padStart(16, "0")
    .repeat(BODY_BYTES / 16);
  return row("event_body_blobs", { hash: sha256(body), kind: "event", original_bytes: BODY_BYTES, body });
}

function smallRow(): WireRow {
  number += 1;
  return row("security_rule_events", {
    ...{
      event_id: eventId(number),
      time_ms: 1_750_000_000_000 + number,
      rule_id: "default.exec",
      action: "allow",
    },
    ...{ priority: 1_001, detection: "none", has_won: true, rule: "{}", event_hash: "0123456789abcdef" },
  });
}

const rowsOf = (make: () => WireRow, length: number): WireRow[] => Array.from({ length }, make);
const appendsOf = (make: () => WireRow, appends: number, length: number): WireRow[][] =>
  Array.from({ length: appends }, () => rowsOf(make, length));

async function withLedger<T>(work: (senders: Senders, ledger: LedgerProcess) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "capsem-bench-ledger-"));
  const ledger = startLedger({ folder, bytesMax: 32 * 1024 ** 3 });
  try {
    await ledger.ready;
    const senders = new Senders(ledger);
    await senders.open();
    return await work(senders, ledger);
  } finally {
    await ledger.end();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Through the whole process: messages, checks, hashes, chain, commit, acknowledgement. */
export async function ledgerFigures(): Promise<Figure[]> {
  const bodies = await withLedger(async (senders) => {
    await senders.send(appendsOf(bodyRow, 8, BODIES_PER_APPEND));
    await senders.prove();
    const rates: number[] = [];
    for (let round = 0; round < count(12, 2); round++) {
      rates.push(await senders.send(appendsOf(bodyRow, count(40, 4), BODIES_PER_APPEND)));
    }
    return { rates, walks: [await senders.prove()] };
  });
  const small = await withLedger(async (senders) => {
    for (let round = 0; round < count(20, 2); round++) {
      await senders.send(appendsOf(smallRow, LEDGERS.length, BURST_ROWS / LEDGERS.length));
    }
    const walks = [await senders.prove()];
    const rates: number[] = [];
    for (let round = 0; round < count(60, 3); round++) {
      rates.push(await senders.send(appendsOf(smallRow, LEDGERS.length, BURST_ROWS / LEDGERS.length)));
    }
    walks.push(await senders.prove());
    return { rates, walks };
  });
  const acts = await withLedger(async (_, ledger) => {
    const times: number[] = [];
    let first = 1;
    for (let n = 0; n < count(2_000, 50); n++) {
      const rows = act({ n: n + 1 });
      const startedMs = performance.now();
      await ledger.call("producer", "ledger.append", {
        ledger: LEDGERS[0] ?? "",
        generation: "g",
        first,
        ...messageOfRows(rows),
      });
      times.push(performance.now() - startedMs);
      first += rows.length;
    }
    const { rows } = await ledger.call("reader", "read.stats", { ledger: LEDGERS[0] ?? "" });
    assert(rows === first - 1, `${rows} rows of ${first - 1}`);
    return times;
  });
  return [
    figure("ledger: rows with bodies of 4 KiB, 4 ledgers", "rows/s", bodies.rates, "≥ 25,000"),
    figure("ledger: bursts of 4,096 small rows, 4 ledgers", "rows/s", small.rates, "≥ 100,000"),
    figure("ledger: one act of 4 rows, to its acknowledgement", "ms", acts, "p50 ≤ 1 ms"),
    figure("ledger: verify, small rows", "rows/s", small.walks, "≥ 100,000"),
    figure("ledger: verify, bodies of 4 KiB", "rows/s", bodies.walks, "to compare"),
  ];
}
