import { existsSync } from "node:fs";
import type { LedgerHead } from "@capsem/api";
import { Failure } from "@capsem/base";
import { ledgerFailure } from "./error.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { ledgerPaths } from "./paths.ts";
import { writerDatabases } from "./schema.ts";
import { type Append, LedgerStore } from "./store.ts";

export interface WriterOptions {
  /** The folder of all ledgers. */
  readonly root: string;
  /** What one ledger may take on the disk; beyond it is the reserve. */
  readonly bytesMax: number;
  readonly now: () => number;
}

export interface OpenRequest {
  readonly ledger: string;
  readonly producer: string;
  readonly generation: string;
  readonly checkpoint: LedgerHead | null;
}

export interface AppendRequest extends Append {
  readonly ledger: string;
}

/** Where a ledger stands after a commit. */
export interface Standing extends LedgerHead {
  /** What counts to its quota. */
  readonly bytes: number;
}

export type AppendEnd =
  | { readonly kind: "taken"; readonly standing: Standing }
  | { readonly kind: "refused"; readonly failure: unknown };

/** Writes all ledgers. Synchronous, so it runs in a thread of its own; one for each folder, or chains would fork. */
export class LedgerWriter {
  readonly #root: string;
  readonly #now: () => number;
  readonly #databases = writerDatabases();
  #bytesMax: number;
  /** The one unused for longest first. */
  readonly #stores = new Map<string, LedgerStore>();
  /** The generation of each producer that has opened a ledger, by ledger; it outlives the files being open. */
  readonly #generations = new Map<string, Map<string, string>>();

  constructor({ root, bytesMax, now }: WriterOptions) {
    this.#root = root;
    this.#bytesMax = bytesMax;
    this.#now = now;
  }

  /** Opens or makes a ledger for a generation, whose producer's earlier acts are ended. */
  open({ ledger, producer, generation, checkpoint }: OpenRequest): Standing & { interrupted: number } {
    const isThere = existsSync(ledgerPaths(this.#root, ledger).database);
    if (!isThere && checkpoint !== null && checkpoint.rows > 0) throw cut(ledger, checkpoint);
    const store = this.#store(ledger);
    if (checkpoint !== null && store.headAt(checkpoint.rows) !== checkpoint.head)
      throw cut(ledger, checkpoint);
    const interrupted = this.#trying(ledger, () => store.interrupt(producer, generation, this.#now()));
    const generations = this.#generations.get(ledger) ?? new Map<string, string>();
    this.#generations.set(ledger, generations.set(producer, generation));
    return { ...store.head, bytes: store.bytes(), interrupted };
  }

  /** One transaction for each ledger that is named. An end for each request, in order. */
  append(requests: readonly AppendRequest[]): AppendEnd[] {
    const ends: AppendEnd[] = [];
    const byLedger = new Map<string, number[]>();
    for (const [index, { ledger }] of requests.entries()) {
      const indexes = byLedger.get(ledger);
      if (indexes === undefined) byLedger.set(ledger, [index]);
      else indexes.push(index);
    }
    for (const [ledger, indexes] of byLedger) {
      const mine = indexes.map((index) => requests[index] as AppendRequest);
      for (const [at, end] of this.#appendTo(ledger, mine).entries()) ends[indexes[at] as number] = end;
    }
    return ends;
  }

  sign(ledger: string, head: LedgerHead, signature: string, keyId: string): void {
    const store = this.#existing(ledger);
    this.#trying(ledger, () => store.sign(head, signature, keyId));
  }

  /** No more rows of this producer's generation come. The files are closed when nobody else has them open. */
  close(producer: string, ledger: string): void {
    const generations = this.#generations.get(ledger);
    if (generations?.has(producer) !== true) return;
    const store = this.#store(ledger);
    this.#trying(ledger, () => store.interrupt(producer, null, this.#now()));
    generations.delete(producer);
    if (generations.size > 0) return;
    this.#generations.delete(ledger);
    this.#closeFiles(ledger);
  }

  /** The producer is gone: everything that it had open is ended. What could not be is ended by the next open. */
  endProducer(producer: string): { ledger: string; failure: unknown }[] {
    const failures: { ledger: string; failure: unknown }[] = [];
    for (const [ledger, generations] of [...this.#generations]) {
      if (!generations.has(producer)) continue;
      try {
        this.close(producer, ledger);
      } catch (failure) {
        generations.delete(producer);
        failures.push({ ledger, failure });
      }
    }
    return failures;
  }

  /** Closes the files of a ledger that is moved or removed. Throws `wrong_state` while a producer has it open. */
  release(ledger: string): void {
    if ((this.#generations.get(ledger)?.size ?? 0) > 0) {
      throw ledgerFailure("wrong_state", `Cannot close ledger "${ledger}": a producer has it open`);
    }
    this.#closeFiles(ledger);
  }

  limit(bytesMax: number): void {
    this.#bytesMax = bytesMax;
  }

  /** Ends all producers and closes all files. */
  end(): { ledger: string; failure: unknown }[] {
    const producers = new Set([...this.#generations.values()].flatMap((each) => [...each.keys()]));
    const failures = [...producers].flatMap((producer) => this.endProducer(producer));
    for (const ledger of [...this.#stores.keys()]) this.#closeFiles(ledger);
    return failures;
  }

  #appendTo(ledger: string, requests: readonly AppendRequest[]): AppendEnd[] {
    const generations = this.#generations.get(ledger);
    const isOpen = ({ producer, generation }: Append) => generations?.get(producer) === generation;
    const mine = requests.filter(isOpen);
    try {
      const store = mine.length === 0 ? null : this.#store(ledger);
      const refusals = store === null ? [] : this.#trying(ledger, () => store.append(mine, this.#bytesMax));
      store?.checkpoint();
      const standing = store === null ? null : { ...store.head, bytes: store.bytesFor(this.#bytesMax) };
      const failures = new Map(mine.map((request, at) => [request, refusals[at] ?? null]));
      return requests.map((request) => {
        const failure = isOpen(request) ? (failures.get(request) ?? null) : notOpen(request);
        return failure === null && standing !== null
          ? { kind: "taken", standing }
          : { kind: "refused", failure };
      });
    } catch (failure) {
      return requests.map((request) => ({
        kind: "refused",
        failure: isOpen(request) ? failure : notOpen(request),
      }));
    }
  }

  /** A connection that failed once may not know what is on the disk: the next use opens another one. */
  #trying<T>(ledger: string, work: () => T): T {
    try {
      return work();
    } catch (thrown) {
      if (!(thrown instanceof Failure && thrown.kind === "invalid_input")) this.#closeFiles(ledger);
      throw thrown;
    }
  }

  #existing(ledger: string): LedgerStore {
    if (existsSync(ledgerPaths(this.#root, ledger).database)) return this.#store(ledger);
    throw ledgerFailure("ledger_not_found", `Cannot find ledger "${ledger}": there is none`);
  }

  #store(ledger: string): LedgerStore {
    const known = this.#stores.get(ledger);
    if (known !== undefined) {
      this.#stores.delete(ledger);
      this.#stores.set(ledger, known);
      return known;
    }
    const store = new LedgerStore(this.#databases, this.#root, ledger, this.#now());
    this.#stores.set(ledger, store);
    const [oldest] = this.#stores.keys();
    if (this.#stores.size > LEDGER_LIMITS.openMax && oldest !== undefined) this.#closeFiles(oldest);
    return store;
  }

  /** What could not be written back is in the log, where the next opening finds it: a full disk is no reason to stay open. */
  #closeFiles(ledger: string): void {
    const store = this.#stores.get(ledger);
    this.#stores.delete(ledger);
    try {
      store?.close();
    } catch (thrown) {
      if (!(thrown instanceof Failure)) throw thrown;
    }
  }
}

function cut(ledger: string, { rows }: LedgerHead): Error {
  return ledgerFailure(
    "ledger_broken",
    `Cannot open ledger "${ledger}": it is not what it was when its head after ${rows} rows was kept`,
  );
}

function notOpen({ ledger, producer, generation }: AppendRequest): Error {
  return ledgerFailure(
    "ledger_gap",
    `Cannot append to ledger "${ledger}": generation "${generation}" of ${producer} is not open`,
  );
}
