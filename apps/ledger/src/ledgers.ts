import { open } from "node:fs/promises";
import { dirname } from "node:path";
import type { LedgerHead, LedgerParams, LedgerResult } from "@capsem/api";
import { decodeRows, type RowsMessage } from "@capsem/api/ledger-row";
import { defer, Failure } from "@capsem/base";
import {
  archiveLedger,
  exportLines,
  goneLedger,
  hasLedger,
  LEDGER_LIMITS,
  type LedgerReader,
  ledgerFailure,
  ledgerPaths,
  listLedgers,
  parseRow,
  ReaderPool,
  type Row,
  readChainRows,
  readDecisions,
  readDetail,
  readHistory,
  readStats,
  readTimeline,
  removeLedger,
  rowHash,
  systemFailure,
  unreadableLedger,
  verifyChain,
} from "@capsem/ledger";
import type { MuxStream } from "@capsem/wire";
import type { Log } from "@capsem/worker";
import type { KeeperThread, WriterThread } from "./thread.ts";
import { nextTurn, Walks } from "./walks.ts";

export interface LedgersParts {
  readonly root: string;
  readonly writer: Pick<WriterThread, "call">;
  readonly keeper: Pick<KeeperThread, "touched" | "release">;
  readonly log: Log;
  readonly now: () => number;
}

/** What the channels ask of the ledgers of one folder; the methods of a role are named in methods.ts. */
export class Ledgers {
  readonly #parts: LedgersParts;
  readonly #readers: ReaderPool;
  readonly #walks = new Walks();
  /** Ledgers whose folder is known to be on the disk. */
  readonly #synced = new Set<string>();
  /** Ledgers whose files are being moved or removed; whoever would open one waits for that. */
  readonly #moving = new Map<string, Promise<void>>();

  constructor(parts: LedgersParts) {
    this.#parts = parts;
    this.#readers = new ReaderPool(parts.root);
  }

  async open(producer: string, params: LedgerParams<"producer", "ledger.open">, signal: AbortSignal) {
    const { ledger, generation, checkpoint, whole } = params;
    checkName(generation);
    if (whole && hasLedger(this.#parts.root, ledger)) {
      const { fault } = await this.#walk(ledger, checkpoint, null, signal);
      if (fault !== null) {
        throw ledgerFailure(
          "ledger_broken",
          `Cannot open ledger "${ledger}": ${fault.message} (${fault.kind})`,
        );
      }
    }
    await this.#inPlace(ledger);
    const standing = await this.#parts.writer.call("open", { ledger, producer, generation, checkpoint });
    this.#parts.keeper.touched(ledger);
    return standing;
  }

  /** Rows are checked and hashed here, beside the thread that commits the ones before them. */
  async append(producer: string, params: AppendParams): Promise<LedgerResult<"producer", "ledger.append">> {
    const { ledger, generation, first } = params;
    const list = listOf(params);
    if (list.length > LEDGER_LIMITS.appendRowsMax) {
      throw ledgerFailure("bad_row", `Cannot append: ${list.length} rows are more than one append may have`);
    }
    const rows: Row[] = [];
    const hashes: string[] = [];
    let characters = 0;
    for (const [index, raw] of list.entries()) {
      const row = parseRow(raw);
      rows.push(row);
      hashes.push(rowHash({ producer, generation, seq: first + index }, row));
      for (const value of row) if (typeof value === "string") characters += value.length;
    }
    const request = { ledger, producer, generation, first, rows, hashes, characters };
    const { rows: count, head, bytes } = await this.#parts.writer.call("append", request);
    this.#parts.keeper.touched(ledger);
    return { rows: count, head, bytes };
  }

  rows(producer: string, { ledger, ...range }: LedgerParams<"producer", "ledger.rows">) {
    return this.#read(ledger, (reader) => ({ rows: readChainRows(reader, producer, range) }));
  }

  /** Answers when the head, and every row before it, would be there after a loss of power. */
  async sign(params: LedgerParams<"producer", "ledger.sign">): Promise<void> {
    const { ledger, rows, head, signature, key_id: keyId } = params;
    checkName(signature);
    checkName(keyId);
    await this.#inPlace(ledger);
    await this.#parts.writer.call("sign", { ledger, head: { rows, head }, signature, keyId });
    await this.#sync(ledger);
  }

  async close(producer: string, ledger: string): Promise<void> {
    await this.#parts.writer.call("close", { producer, ledger });
  }

  timeline(params: LedgerParams<"reader", "read.timeline">) {
    return this.#read(params.ledger, (reader) => readTimeline(reader, params));
  }

  history(params: LedgerParams<"reader", "read.history">) {
    return this.#read(params.ledger, (reader) => readHistory(reader, params));
  }

  decisions(params: LedgerParams<"reader", "read.decisions">) {
    return this.#read(params.ledger, (reader) => readDecisions(reader, params));
  }

  stats(ledger: string) {
    return this.#read(ledger, readStats);
  }

  detail(ledger: string, signal: AbortSignal) {
    return this.#walks.run(signal, () => this.#newReader(ledger), readDetail);
  }

  async verify(
    { ledger, checkpoint, public_key }: LedgerParams<"reader", "read.verify">,
    signal: AbortSignal,
  ) {
    const wasThere = checkpoint !== null && checkpoint.rows > 0;
    if (wasThere && !hasLedger(this.#parts.root, ledger)) return goneLedger(ledger, checkpoint);
    return this.#walk(ledger, checkpoint, public_key, signal);
  }

  list(signal: AbortSignal) {
    const { root, log } = this.#parts;
    const onFault = (ledger: string, thrown: unknown) => {
      log("error", "a ledger cannot be read", { ledger, cause: String(thrown) });
    };
    return this.#walks.run(
      signal,
      () => ({ close: () => undefined }),
      () => listLedgers(root, this.#readers, onFault),
    );
  }

  /** Opens what is exported at once, so that one that is not there is no empty export. */
  export(ledger: string): { run: (stream: MuxStream) => Promise<void>; close: () => void } {
    const reader = this.#newReader(ledger);
    return {
      run: async (stream) => {
        for (const lines of exportLines(reader)) {
          await stream.write(Buffer.from(lines, "utf8"));
          await nextTurn();
        }
      },
      close: () => reader.close(),
    };
  }

  async archive(ledger: string): Promise<string> {
    const { root, now, log } = this.#parts;
    const name = await this.#move(ledger, () => archiveLedger(root, ledger, now()));
    log("warning", "a ledger was set aside", { ledger, name });
    return name;
  }

  async remove(ledger: string): Promise<void> {
    await this.#move(ledger, () => removeLedger(this.#parts.root, ledger));
    this.#parts.log("warning", "a ledger was removed", { ledger });
  }

  async limit(bytesMax: number): Promise<void> {
    await this.#parts.writer.call("limit", { bytesMax });
  }

  /** After the last read. */
  end(): void {
    this.#readers.close();
  }

  /** Nobody opens its files between their release and their move: rows would follow them to where they are put. */
  async #move<T>(ledger: string, move: () => T): Promise<T> {
    await this.#inPlace(ledger);
    const moved = defer<void>();
    this.#moving.set(ledger, moved.promise);
    try {
      await this.#release(ledger);
      return move();
    } finally {
      this.#moving.delete(ledger);
      moved.resolve();
    }
  }

  async #inPlace(ledger: string): Promise<void> {
    for (let moved = this.#moving.get(ledger); moved !== undefined; moved = this.#moving.get(ledger))
      await moved;
  }

  async #release(ledger: string): Promise<void> {
    await this.#parts.writer.call("release", { ledger });
    await this.#parts.keeper.release(ledger);
    this.#readers.release(ledger);
    this.#synced.delete(ledger);
  }

  #newReader(ledger: string): LedgerReader {
    return this.#readers.open(ledger);
  }

  /** A connection that failed once may not know what is on the disk: the next read opens another one. */
  #read<T>(ledger: string, work: (reader: LedgerReader) => T): T {
    const reader = this.#readers.get(ledger);
    try {
      return work(reader);
    } catch (thrown) {
      const isAsked = thrown instanceof Failure && thrown.kind === "invalid_input";
      if (!isAsked) this.#readers.release(ledger);
      throw thrown;
    }
  }

  async #walk(ledger: string, checkpoint: LedgerHead | null, publicKey: string | null, signal: AbortSignal) {
    try {
      return await this.#walks.run(
        signal,
        () => this.#newReader(ledger),
        (reader) => verifyChain(reader, { checkpoint, publicKey }),
      );
    } catch (thrown) {
      // It could not even be opened as a ledger, which is what was asked.
      if (thrown instanceof Failure && thrown.kind === "ledger_broken")
        return unreadableLedger(ledger, thrown);
      throw thrown;
    }
  }

  /** The log of changes, which has what no checkpoint has written back; and once the folders that it is found by. */
  async #sync(ledger: string): Promise<void> {
    const { database, folder } = ledgerPaths(this.#parts.root, ledger);
    const folders = this.#synced.has(ledger) ? [] : [folder, dirname(folder)];
    for (const path of [`${database}-wal`, ...folders]) {
      try {
        const file = await open(path, "r");
        try {
          await file.sync();
        } finally {
          await file.close();
        }
      } catch (cause) {
        // A log that is gone was written back, and that was synced.
        if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") continue;
        throw systemFailure(`write ledger "${ledger}" to the disk`, cause);
      }
    }
    this.#synced.add(ledger);
  }
}

/** The rows are not yet checked. */
export interface AppendParams extends RowsMessage {
  readonly ledger: string;
  readonly generation: string;
  readonly first: number;
}

/** Throws `bad_row` for what is no list at all. */
function listOf(message: RowsMessage): readonly unknown[] {
  try {
    const list = decodeRows(message);
    if (list !== null) return list;
  } catch (thrown) {
    if (!(thrown instanceof SyntaxError)) throw thrown;
  }
  throw ledgerFailure("bad_row", "Cannot append: the rows are no JSON list");
}

/** What a producer chooses and every row of the chain repeats. */
function checkName(name: string): void {
  const bytes = Buffer.byteLength(name);
  if (bytes > 0 && bytes <= LEDGER_LIMITS.nameBytesMax && !name.includes("\0")) return;
  throw ledgerFailure(
    "invalid_input",
    `Cannot use a name of ${bytes} bytes: it has 1 to ${LEDGER_LIMITS.nameBytesMax}`,
  );
}
