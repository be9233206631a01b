import { type Duplex, duplexPair, PassThrough } from "node:stream";
import {
  LEDGER_METHODS,
  type LedgerHead,
  type LedgerMethod,
  type LedgerParams,
  type LedgerPlan,
  type LedgerResult,
  type LedgerRole,
} from "@capsem/api";
import { rowHash } from "@capsem/api/ledger-chain";
import { decodeRows } from "@capsem/api/ledger-row";
import { defer, Failure } from "@capsem/base";
import { createPeer, type Handler, type Peer, type StreamHandler } from "@capsem/rpc";
import type { LedgerChild, OwnerExit } from "../powers.ts";
import { decisionsOf, detailOf, historyOf, statsOf, timelineOf } from "./fake-ledger-reads.ts";
import {
  type FakeStore,
  FakeStores,
  fieldsOf,
  rowFault,
  type StoredRow,
  type WireRow,
} from "./fake-ledger-store.ts";

/** Where a fake ledger may die, as if it had been killed there. */
export type DeathPoint = "at open" | "after open" | "before commit" | "after commit" | "at sign" | "at close";

/** Changed by tests at any time. */
export interface FakeLedgerFaults {
  /** Dies once, there; then the next process is a healthy one. */
  dieAt?: DeathPoint | null;
  /** Kinds that the next appends fail with, one each. */
  appendFailures?: string[];
  /** The same for opens. */
  openFailures?: string[];
  /** Ledgers that are found broken when they are opened. */
  broken?: Set<string>;
  /** So much of its size is gone again when somebody looks: a log that was written back. */
  bytesLess?: number;
  /** It starts, and says nothing. */
  isMute?: boolean;
  /** It was taken over: what it says of its head after an append, instead of the truth. */
  lie?: (head: LedgerHead, ledger: string) => LedgerHead;
  /** Appends are answered when it resolves. */
  appendGate?: () => Promise<void>;
  /** It says no more than that it cannot start. */
  exit?: OwnerExit;
}

type Methods<R extends LedgerRole> = {
  [M in Exclude<LedgerMethod<R>, "keep.export">]: (
    params: LedgerParams<R, M>,
  ) => LedgerResult<R, M> | Promise<LedgerResult<R, M>>;
};

/** Types whose rows a full ledger takes, and the tables that they end in. */
const ESSENTIAL = ["vm.lifecycle", "settings.change"];
const ENDS = ["exec_events", "fs_events", "lifecycle_events", "policy_mutations"];

/**
 * A ledger process inside the test's own, behind the contract: it numbers, refuses gaps, ends what a dead generation
 * left open, and keeps its rows in its folder, so that a later one finds them.
 */
export class FakeLedger {
  readonly faults: FakeLedgerFaults;
  /** Processes that were started. */
  starts = 0;
  /** Batches that came, and how large they were. */
  readonly batches: { readonly ledger: string; readonly first: number; readonly rows: number }[] = [];
  readonly signed = new Map<string, LedgerParams<"producer", "ledger.sign">>();
  readonly opened: LedgerParams<"producer", "ledger.open">[] = [];
  readonly verified: LedgerParams<"reader", "read.verify">[] = [];
  /** Ledgers that were closed, in order. */
  readonly closed: string[] = [];
  #life: Life | null = null;
  #folder: string | null = null;

  constructor(faults: FakeLedgerFaults = {}) {
    this.faults = faults;
  }

  /** For `Powers`. */
  readonly startLedger = (plan: LedgerPlan): LedgerChild => {
    this.starts += 1;
    this.#folder = plan.folder;
    this.#life = new Life(this, plan);
    return this.#life.child;
  };

  /** As `kill -9` does it. */
  die(): void {
    this.#life?.die();
  }

  /** A row of this life is another than what was written. */
  alter(ledger: string, row: number): void {
    this.#life?.alter(ledger, row);
  }

  /** Rows of a table, or all, as they are stored. */
  rows(ledger: string, table?: string): Readonly<Record<string, string | number | null>>[] {
    if (this.#folder === null) return [];
    const stores = new FakeStores(this.#folder);
    if (!stores.names().includes(ledger)) return [];
    const found = stores.found(ledger).rows.filter(({ row }) => table === undefined || row[0] === table);
    return found.map(({ row }) => ({ table: row[0] ?? null, ...fieldsOf(row) }));
  }
}

/** One life of the process. */
class Life {
  readonly child: LedgerChild;
  readonly #ledger: FakeLedger;
  readonly #stores: FakeStores;
  readonly #ends: Duplex[] = [];
  readonly #peers: Peer[] = [];
  readonly #exited = defer<OwnerExit>();
  readonly #stderr = new PassThrough();
  #vmBytesMax: number;

  constructor(ledger: FakeLedger, plan: LedgerPlan) {
    this.#ledger = ledger;
    this.#vmBytesMax = plan.vm_bytes_max;
    this.#stores = new FakeStores(plan.folder);
    const channels = plan.channels.map(({ role }) => {
      const [ours, theirs] = duplexPair();
      this.#ends.push(ours, theirs);
      if (ledger.faults.exit === undefined) this.#peers.push(this.#serve(role, ours));
      return theirs;
    });
    const stdin = new PassThrough();
    stdin.resume();
    this.child = {
      pid: 1_000_000 + ledger.starts,
      stdin,
      stderr: this.#stderr,
      channels,
      exited: this.#exited.promise,
      kill: () => this.die(),
    };
    if (ledger.faults.exit !== undefined) this.#end(ledger.faults.exit);
    else
      void Promise.all(this.#peers.map(({ ended }) => ended)).then(() =>
        this.#end({ code: 0, signal: null, message: null }),
      );
  }

  alter(ledger: string, row: number): void {
    this.#stores.found(ledger).alter(row);
  }

  die(): void {
    this.#end({ code: null, signal: "SIGKILL", message: null });
  }

  #end(exit: OwnerExit): void {
    for (const end of this.#ends) end.destroy();
    this.#stderr.end();
    this.#exited.resolve(exit);
  }

  #serve(role: LedgerRole, duplex: Duplex): Peer {
    const methods = { producer: this.#producer(), reader: this.#reader(), maintainer: this.#maintainer() };
    const peer = createPeer({
      role: "guest",
      duplex,
      handlers: handlersOf(role, methods[role], () => this.#ledger.faults.isMute === true),
      streaming: role === "maintainer" ? { "keep.export": this.#export() } : {},
    });
    if (this.#ledger.faults.isMute !== true) {
      peer.call("ledger.ready", { unconfined: [], notes: [] }).catch(() => undefined);
    }
    return peer;
  }

  #producer(): Methods<"producer"> {
    const { faults, batches, signed, opened, closed } = this.#ledger;
    const bytesOf = (store: FakeStore) => Math.max(0, store.bytes - (faults.bytesLess ?? 0));
    return {
      "ledger.open": (params) => {
        const { ledger, generation, checkpoint, whole } = params;
        this.#dieAt("at open");
        opened.push(params);
        const failure = faults.openFailures?.shift();
        if (failure !== undefined) throw new Failure(failure, `Cannot open ledger "${ledger}": scripted`);
        const store = this.#stores.made(ledger);
        const isWrong = checkpoint !== null && store.contradicts(checkpoint);
        if (faults.broken?.has(ledger) === true || isWrong || (whole && store.fault() > 0)) {
          throw new Failure("ledger_broken", `Cannot open ledger "${ledger}": a row is not what was written`);
        }
        const isOther = store.rows.at(-1)?.generation !== generation && store.generation !== generation;
        const interrupted = isOther ? store.interrupt(Date.now()) : 0;
        store.generation = generation;
        this.#dieAt("after open");
        return { ...store.head, interrupted, bytes: bytesOf(store) };
      },
      "ledger.append": async ({ ledger, generation, first, ...message }) => {
        const rows = (decodeRows(message) ?? []) as readonly WireRow[];
        await faults.appendGate?.();
        const failure = faults.appendFailures?.shift();
        if (failure !== undefined)
          throw new Failure(failure, `Cannot append to ledger "${ledger}": scripted`);
        batches.push({ ledger, first, rows: rows.length });
        const store = this.#stores.made(ledger);
        if (store.generation !== generation)
          throw new Failure("ledger_gap", "Cannot append: the generation is not open");
        const fresh = freshRows(store, generation, first, rows);
        if (fresh.length > 0 && bytesOf(store) >= this.#vmBytesMax && !areEssential(fresh, store)) {
          throw new Failure("ledger_full", `Cannot append to ledger "${ledger}": it is full`);
        }
        this.#dieAt("before commit");
        store.commit(fresh);
        this.#dieAt("after commit");
        return { ...(faults.lie?.(store.head, ledger) ?? store.head), bytes: bytesOf(store) };
      },
      "ledger.rows": ({ ledger, after, until }) => ({
        rows: this.#stores.found(ledger).rows.slice(after, until).map(toldRow),
      }),
      "ledger.sign": (params) => {
        this.#dieAt("at sign");
        signed.set(params.ledger, params);
        return {};
      },
      "ledger.close": ({ ledger }) => {
        this.#dieAt("at close");
        const store = this.#stores.found(ledger);
        if (store.generation === null) return {};
        store.interrupt(Date.now());
        store.generation = null;
        closed.push(ledger);
        return {};
      },
    };
  }

  #reader(): Methods<"reader"> {
    const found = (ledger: string) => this.#stores.found(ledger);
    return {
      "read.timeline": (params) => timelineOf(found(params.ledger), params),
      "read.history": (params) => historyOf(found(params.ledger), params),
      "read.decisions": (params) => decisionsOf(found(params.ledger), params),
      "read.stats": ({ ledger }) => statsOf(ledger, found(ledger)),
      "read.detail": ({ ledger }) => detailOf(ledger, found(ledger)),
      "read.verify": (params) => {
        this.#ledger.verified.push(params);
        return this.#verify(params.ledger, params.checkpoint);
      },
      "read.list": () => ({ ledgers: this.#stores.names().map((ledger) => this.#listed(ledger)) }),
    };
  }

  #verify(
    ledger: string,
    checkpoint: LedgerParams<"reader", "read.verify">["checkpoint"],
  ): LedgerResult<"reader", "read.verify"> {
    const store = this.#stores.found(ledger);
    const at = store.fault();
    const isCut = checkpoint !== null && store.contradicts(checkpoint);
    const row = at > 0 ? at : (checkpoint?.rows ?? 0);
    const fault = {
      kind: at > 0 ? ("altered" as const) : ("cut" as const),
      row,
      table: null,
      event_id: null,
    };
    return {
      vm_id: ledger as LedgerResult<"reader", "read.verify">["vm_id"],
      is_whole: at === 0 && !isCut,
      ...store.head,
      signed_rows: this.#ledger.signed.get(ledger)?.rows ?? 0,
      fault: at > 0 || isCut ? { ...fault, message: `row ${row} is not what was written` } : null,
    };
  }

  #listed(ledger: string): LedgerResult<"reader", "read.list">["ledgers"][number] {
    const store = this.#stores.found(ledger);
    const times = store.rows
      .map(({ row }) => fieldsOf(row))
      .filter(({ time_ms }) => typeof time_ms === "number");
    return {
      vm_id: ledger as "host",
      name: null,
      rows: store.rows.length,
      bytes: store.bytes,
      first_ms: times.length === 0 ? null : Number(times[0]?.time_ms),
      last_ms: times.length === 0 ? null : Number(times.at(-1)?.time_ms),
      archived: this.#stores.archived(ledger),
    };
  }

  #maintainer(): Methods<"maintainer"> {
    return {
      "keep.archive": ({ ledger }) => ({ name: this.#stores.archive(ledger) }),
      "keep.remove": ({ ledger }) => {
        this.#stores.remove(ledger);
        return {};
      },
      "keep.limit": ({ vm_bytes_max: bytes }) => {
        this.#vmBytesMax = bytes;
        return {};
      },
    };
  }

  #export(): StreamHandler {
    return async (raw) => {
      const { ledger } = raw as { ledger: string };
      const store = this.#stores.found(ledger);
      return {
        result: {},
        async run(stream) {
          await stream.write(Buffer.from(`${JSON.stringify({ ledger, ...store.head })}\n`));
          for (const [index, { row }] of store.rows.entries()) {
            const line = { n: index + 1, table: row[0], ...fieldsOf(row), head: store.heads[index] };
            await stream.write(Buffer.from(`${JSON.stringify(line)}\n`));
          }
        },
      };
    };
  }

  #dieAt(point: DeathPoint): void {
    const { faults } = this.#ledger;
    if (faults.dieAt !== point) return;
    faults.dieAt = null;
    this.die();
    throw new Failure("cancelled", "killed");
  }
}

/** Rows that are not there yet. */
function freshRows(
  store: FakeStore,
  generation: string,
  first: number,
  rows: readonly WireRow[],
): StoredRow[] {
  const { seq } = store;
  if (first > seq + 1) throw new Failure("ledger_gap", `Cannot append row ${first}: the last one is ${seq}`);
  const fresh = rows
    .map((row, index) => ({ producer: "service", generation, seq: first + index, row }))
    .filter((each) => each.seq > seq);
  for (const { row } of fresh) {
    const fault = rowFault(row);
    if (fault !== null) throw new Failure("bad_row", `Cannot append a row: ${fault}`);
  }
  return fresh;
}

/** As the ledger tells its producer of it. */
function toldRow({ producer, generation, seq, row }: StoredRow) {
  const hash = rowHash({ producer, generation, seq }, row);
  return { hash, row: producer === "service" ? null : [producer, generation, seq, ...row] };
}

/** As the ledger has it: ends of open acts, and all that belongs to the life of the VM. */
function areEssential(rows: readonly StoredRow[], store: FakeStore): boolean {
  const events = new Set<unknown>();
  const hashes = new Set<unknown>();
  for (const { row } of rows) {
    const fields = fieldsOf(row);
    if (row[0] !== "security_decision_events" || !ESSENTIAL.includes(String(fields.type))) continue;
    events.add(fields.event_id);
    hashes.add(fields.event_hash);
  }
  return rows.every(({ row }) => {
    const fields = fieldsOf(row);
    if (row[0] === "event_body_blobs") return hashes.has(fields.hash);
    if (row[0] === "lifecycle_events" || row[0] === "policy_mutations") return true;
    const isEnd = ENDS.includes(String(row[0])) && store.open.get(String(fields.event_id)) === row[0];
    return isEnd || events.has(fields.event_id);
  });
}

/** Parses what comes as the contract says, and answers nothing at all while it is mute. */
function handlersOf(role: LedgerRole, methods: object, isMute: () => boolean): Record<string, Handler> {
  const known: Readonly<Record<string, { readonly params: { parse(value: unknown): unknown } }>> =
    LEDGER_METHODS[role];
  return Object.fromEntries(
    Object.entries(methods).map(([name, method]: [string, (params: unknown) => unknown]) => [
      name,
      async (raw: unknown) => {
        if (isMute()) await new Promise(() => undefined);
        return method(known[name]?.params.parse(raw));
      },
    ]),
  );
}
