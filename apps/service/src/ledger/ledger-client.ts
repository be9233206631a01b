import { existsSync, statfsSync } from "node:fs";
import { join } from "node:path";
import {
  apiFailure,
  type ErrorKind,
  HOST_LEDGER,
  type LedgerHead,
  type LedgerMethod,
  type LedgerParams,
  type LedgerResult,
  type LedgerRow,
  type LedgerTable,
  type ServiceStatus,
  type VerifyResult,
} from "@capsem/api";
import { Failure, ignore, messageOf } from "@capsem/base";
import type { MuxStream } from "@capsem/wire";
import type { AnyRow, LedgerWriter } from "../boundary/parts.ts";
import type { HomeLayout } from "../home/layout.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { settledWithin } from "../owner/settled.ts";
import { ChainFollower } from "./chain-follower.ts";
import type { Checkpoints } from "./checkpoints.ts";
import { HeadKeeper } from "./head-keeper.ts";
import type { HeadKey } from "./key-files.ts";
import { ledgerFailure } from "./ledger-failure.ts";
import { LedgerFeed } from "./ledger-feed.ts";
import type { LedgerLink } from "./ledger-link.ts";
import type { LedgerProcess } from "./ledger-process.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { areEnds } from "./row-code.ts";
import { Waiters } from "./waiters.ts";

export interface LedgerClientParts {
  readonly layout: Pick<HomeLayout, "ledgers">;
  readonly process: LedgerProcess;
  readonly key: HeadKey;
  readonly checkpoints: Checkpoints;
  readonly newGeneration: () => string;
  readonly monotonicMs: () => number;
  readonly vmBytesMax: number;
  readonly log: ServiceLog;
}

type Listed = LedgerResult<"reader", "read.list">["ledgers"][number];
const GONE = { name: null, rows: 0, bytes: 0, first_ms: null, last_ms: null, archived: 0 };

type ReadMethod = LedgerMethod<"reader">;

/** The service's side of the ledger: rows in, pages out, heads signed. */
export class LedgerClient implements LedgerWriter {
  readonly #parts: LedgerClientParts;
  readonly #feeds = new Map<string, LedgerFeed>();
  /** What is known of each chain in this service's life, also while nothing is written to it. */
  readonly #chains = new Map<string, ChainFollower>();
  readonly #heads: HeadKeeper;
  readonly #waiters = new Waiters();
  readonly #weight = { characters: 0 };
  #vmBytesMax: number;

  constructor(parts: LedgerClientParts) {
    this.#parts = parts;
    this.#vmBytesMax = parts.vmBytesMax;
    this.#heads = new HeadKeeper({ ...parts, link: () => this.#link });
  }

  append<T extends LedgerTable>(ledger: string, table: T, row: LedgerRow<T>): void {
    this.appendAll(ledger, [{ table, row } as AnyRow]);
  }

  appendAll(ledger: string, rows: readonly AnyRow[], isDue = false): void {
    const feed = this.#feedOf(ledger);
    // What was begun while the ledger was whole is ended in the service's own.
    if (feed.isBroken && ledger !== HOST_LEDGER && areEnds(rows)) {
      this.#feedOf(HOST_LEDGER).append(rows);
    } else feed.append(rows, isDue);
  }

  /** Why a ledger takes nothing new, and how full its queue is: 1 is full. */
  roomOf(ledger: string): { readonly refusal: Failure<ErrorKind> | null; readonly load: number } {
    const feed = this.#feedOf(ledger);
    return { refusal: feed.refusal(), load: feed.load };
  }

  /**
   * Resolves when it is known whether rows would be taken: at once, or within two seconds for a ledger that is being
   * restarted. Throws "ledger_away". What a full or broken ledger still takes depends on the row: `append` says it.
   */
  ready(ledger: string, signal?: AbortSignal): Promise<void> {
    return this.#feedOf(ledger).ready(signal);
  }

  async flush(ledger: string, signal?: AbortSignal): Promise<void> {
    await this.#feeds.get(ledger)?.flush(signal);
    if (this.#feeds.get(ledger)?.isBroken === true && ledger !== HOST_LEDGER)
      await this.flush(HOST_LEDGER, signal);
  }

  /**
   * Before a VM runs: walks all of a ledger that is older than this service. Throws "ledger_broken" when it is not what
   * was written, "ledger_away" when nobody can say.
   */
  checkWhole(ledger: string, signal?: AbortSignal): Promise<void> {
    return this.#feedOf(ledger).checkWhole(signal);
  }

  /**
   * Its VM runs no more, or is being deleted: everything so far is committed, its head signed and in its checkpoint. Its
   * files are closed when the acts under way have ended too, so this may be called inside one of them.
   */
  async finish(ledger: string): Promise<void> {
    const feed = this.#feeds.get(ledger);
    if (feed === undefined) return;
    try {
      await feed.flush();
      await this.#keepHead(feed);
    } finally {
      // What could not be written yet is, when it can be, and then it is closed.
      feed.closeWhenIdle();
    }
  }

  /** A ledger that dies as it signs signs again. */
  async #keepHead(feed: LedgerFeed): Promise<void> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.#heads.keep(feed.ledger);
      } catch (thrown) {
        const isAway = thrown instanceof Failure && thrown.kind === "peer_lost";
        if (!isAway || tries >= LEDGER_LIMITS.signTries) throw thrown;
        await feed.ready();
      }
    }
  }

  get status(): ServiceStatus["ledger"] {
    const { state, reason } = this.#parts.process;
    if (state !== "ok") return { state, reason };
    const stuck = [...this.#feeds.values()].find(({ hasNoRoom }) => hasNoRoom);
    if (stuck !== undefined) return { state: "away", reason: stuck.reason };
    const host = this.#feeds.get(HOST_LEDGER);
    // Without the service's own ledger nothing is done that belongs to no VM.
    const isFailing = host?.state === "failing" || host?.isBroken === true;
    return isFailing ? { state: "away", reason: host.reason } : { state, reason: this.#brokenWords() };
  }

  /** A broken ledger holds up its own VM alone; whoever looks at the service is told. */
  #brokenWords(): string | null {
    const ids = this.broken.map(({ ledger }) => ledger);
    if (ids.length === 0) return null;
    const named = ids.slice(0, LEDGER_LIMITS.brokenNamedMax);
    const more = ids.length > named.length ? ` and ${ids.length - named.length} more` : "";
    const words = ids.length === 1 ? "the ledger of VM" : "the ledgers of VMs";
    const are = ids.length === 1 ? "is" : "are";
    return `${words} ${named.join(", ")}${more} ${are} broken; \`capsem ledger verify\` says where`;
  }

  /** What the process could not be confined by, and second walls that are missing; both empty: nothing to say. */
  get confinement(): { readonly unconfined: readonly string[]; readonly notes: readonly string[] } {
    const { unconfined, notes } = this.#parts.process;
    return { unconfined, notes };
  }

  /** Ledgers that are broken, and why. */
  get broken(): readonly { readonly ledger: string; readonly reason: string | null }[] {
    return [...this.#feeds.values()]
      .filter(({ isBroken }) => isBroken)
      .map(({ ledger, reason }) => ({ ledger, reason }));
  }

  /**
   * A verification found that it is not what was written. From now on it is as if its own walk had found it: acts of its
   * VM are refused, it does not start, and no head of it is signed, until it is set aside.
   */
  foundBroken(ledger: string, reason: string): void {
    // One that was set aside takes no rows anyway.
    if (ledger.includes("@")) return;
    this.#feedOf(ledger).foundBroken(reason);
    ignore(this.#heads.forget(ledger));
  }

  /** The settings have another limit. */
  async setVmBytesMax(bytes: number): Promise<void> {
    this.#vmBytesMax = bytes;
    try {
      await this.#link?.call("maintainer", "keep.limit", { vm_bytes_max: bytes }, SHORT);
    } catch (thrown) {
      // The next process is started with it.
      if (!(thrown instanceof Failure && thrown.kind === "peer_lost")) throw readFailure(thrown, HOST_LEDGER);
    }
    for (const feed of this.#feeds.values()) feed.limitChanged();
  }

  get vmBytesMax(): number {
    return this.#vmBytesMax;
  }

  /** What was taken before is in the answer. */
  async read<M extends ReadMethod>(
    method: M,
    params: LedgerParams<"reader", M>,
    signal?: AbortSignal,
    timeoutMs: number = LEDGER_LIMITS.readTimeoutMs,
  ): Promise<LedgerResult<"reader", M>> {
    const { ledger } = params as { readonly ledger?: string };
    await this.#flushFor(ledger, signal);
    const link = await this.#linked(signal);
    try {
      return await link.call("reader", method, params, { timeoutMs, ...signalOf(signal) });
    } catch (thrown) {
      throw readFailure(thrown, ledger);
    }
  }

  /** Ledgers that are there, that were set aside, and those of which only the checkpoint is left. */
  async list(signal?: AbortSignal): Promise<Listed[]> {
    const { ledgers } = await this.read("read.list", {}, signal);
    const known = new Set<string>(ledgers.map(({ vm_id: id }) => id));
    const gone = (await this.#parts.checkpoints.list()).filter((id) => !known.has(id));
    return [...ledgers, ...gone.map((id) => ({ ...GONE, vm_id: id }))];
  }

  /** JSON lines; the caller ends or resets the stream. */
  async export(ledger: string, signal?: AbortSignal): Promise<MuxStream> {
    await this.#flushFor(ledger, signal);
    const link = await this.#linked(signal);
    try {
      const { stream } = await link.open("maintainer", "keep.export", { ledger }, signalOf(signal));
      return stream;
    } catch (thrown) {
      throw readFailure(thrown, ledger);
    }
  }

  checkpointOf(ledger: string): Promise<LedgerHead | null> {
    return this.#parts.checkpoints.read(ledger);
  }

  get publicKey(): string {
    return this.#parts.key.publicKey;
  }

  /** Whether every row from the first is what was written, and every head what was signed. */
  async verify(ledger: string, signal?: AbortSignal): Promise<VerifyResult> {
    const request = { ledger, checkpoint: await this.checkpointOf(ledger), public_key: this.publicKey };
    return await this.read("read.verify", request, signal, LEDGER_LIMITS.verifyTimeoutMs);
  }

  /**
   * Sets a broken ledger and its checkpoint aside; the next row begins a new one. Answers what it is called there.
   * Throws "wrong_state" for one that is whole: evidence is not put out of the way.
   */
  async archive(ledger: string, signal?: AbortSignal): Promise<string> {
    const { checkpoints } = this.#parts;
    await this.#refuseWhole(ledger, signal);
    return await this.#lent(ledger, async (link) => {
      try {
        const { name } = await link.call("maintainer", "keep.archive", { ledger }, SHORT);
        await checkpoints.archive(ledger, name);
        this.#chains.get(ledger)?.reset();
        return name;
      } catch (thrown) {
        this.#chains.get(ledger)?.forget();
        const isGone = thrown instanceof Failure && thrown.kind === "ledger_not_found";
        // Files that are gone, and a checkpoint that says they were there, is a broken ledger like another.
        if (isGone && (await checkpoints.archive(ledger, ARCHIVED_BEFORE))) return ARCHIVED_BEFORE;
        throw readFailure(thrown, ledger);
      }
    });
  }

  /** For good. The caller has recorded why. */
  async remove(ledger: string): Promise<void> {
    await this.#lent(ledger, async (link) => {
      await link.call("maintainer", "keep.remove", { ledger }, SHORT);
      await this.#parts.checkpoints.remove(ledger);
      this.#chains.get(ledger)?.reset();
    });
  }

  async #refuseWhole(ledger: string, signal: AbortSignal | undefined): Promise<void> {
    if (this.#feeds.get(ledger)?.isBroken === true) return;
    try {
      if (!(await this.verify(ledger, signal)).is_whole) return;
    } catch (thrown) {
      // A checkpoint that cannot be trusted is a fault; of files that are gone the caller finds out by itself.
      const kind = thrown instanceof Failure ? thrown.kind : null;
      if (kind === "ledger_broken" || kind === "ledger_not_found") return;
      throw thrown;
    }
    throw apiFailure("wrong_state", `Cannot set the ledger of "${ledger}" aside: it is whole`);
  }

  /** Every row committed, every head signed, every file closed, as far as the time allows; then the process ends. */
  async close(): Promise<void> {
    const all = Promise.allSettled([...this.#feeds.keys()].map((ledger) => this.#finishOrSay(ledger)));
    if (!(await settledWithin(all, LEDGER_LIMITS.closeTimeoutMs))) {
      this.#parts.log("error", "the ledger was closed before it had everything", {
        rows: this.#waitingRows(),
      });
    }
    await this.#parts.process.stop();
  }

  /** The process has another link, or none. */
  linkChanged(): void {
    for (const feed of this.#feeds.values()) feed.wake();
    this.#waiters.tell();
  }

  async #finishOrSay(ledger: string): Promise<void> {
    try {
      await this.finish(ledger);
      await this.#feeds.get(ledger)?.close();
    } catch (thrown) {
      this.#parts.log("error", "a ledger was not finished", { vm_id: ledger, cause: messageOf(thrown) });
    }
  }

  /** Its files are closed here and there, whatever state it is in, and nothing opens them before `work` is done. */
  async #lent<T>(ledger: string, work: (link: LedgerLink) => Promise<T>): Promise<T> {
    const feed = this.#feedOf(ledger);
    await feed.lend();
    let link: LedgerLink;
    try {
      link = await this.#letGo(ledger);
    } catch (thrown) {
      feed.giveBack();
      throw thrown;
    }
    try {
      return await work(link);
    } finally {
      feed.reset();
    }
  }

  async #letGo(ledger: string): Promise<LedgerLink> {
    await this.#heads.forget(ledger);
    const link = await this.#linked();
    try {
      await link.call("producer", "ledger.close", { ledger }, SHORT);
    } catch (thrown) {
      // One that is found broken, or is not there, is not open.
      if (!(thrown instanceof Failure) || thrown.kind === "peer_lost") throw readFailure(thrown, ledger);
    }
    return link;
  }

  /** A ledger that takes no rows can be read all the same; one that is away cannot, which the read itself says. */
  async #flushFor(ledger: string | undefined, signal: AbortSignal | undefined): Promise<void> {
    if (ledger === undefined) return;
    try {
      await this.flush(ledger, signal);
    } catch (thrown) {
      if (!(thrown instanceof Failure) || thrown.kind === "cancelled") throw thrown;
    }
  }

  get #link(): LedgerLink | null {
    return this.#parts.process.link;
  }

  async #linked(signal?: AbortSignal): Promise<LedgerLink> {
    const away = () => ledgerFailure("ledger_away", HOST_LEDGER, this.#parts.process.reason);
    await this.#waiters.until(() => this.#link !== null, this.#away().waitMs, away, signal);
    const link = this.#link;
    if (link === null) throw away();
    return link;
  }

  #away() {
    const { state, awayMs, reason } = this.#parts.process;
    const waitMs = state === "starting" ? LEDGER_LIMITS.startWaitMs : LEDGER_LIMITS.awayWaitMs;
    return { ms: awayMs, waitMs, reason };
  }

  #feedOf(ledger: string): LedgerFeed {
    const known = this.#feeds.get(ledger);
    if (known !== undefined) return known;
    const { layout, checkpoints, newGeneration, monotonicMs, log } = this.#parts;
    const feed = new LedgerFeed(ledger, {
      link: () => this.#link,
      away: () => this.#away(),
      newGeneration,
      checkpoint: (id) => checkpoints.read(id),
      hasFiles: (id) => existsSync(join(layout.ledgers, id)),
      chain: this.#chainOf(ledger),
      bytesMax: () => this.#vmBytesMax,
      isDiskFull: () => isDiskFull(layout.ledgers),
      onHead: (id, head) => this.#heads.note(id, head),
      keepHead: (id) => this.#heads.keep(id),
      onClosed: (id) => this.#forget(id),
      handOn: (id, rows) => this.#handOn(id, rows),
      monotonicMs,
      log,
      weight: this.#weight,
    });
    this.#feeds.set(ledger, feed);
    return feed;
  }

  #chainOf(ledger: string): ChainFollower {
    const chain = this.#chains.get(ledger) ?? new ChainFollower(ledger);
    this.#chains.set(ledger, chain);
    return chain;
  }

  #forget(ledger: string): void {
    this.#feeds.delete(ledger);
    ignore(this.#heads.forget(ledger));
  }

  /** What was taken for a ledger that cannot store it is kept in the service's own. */
  #handOn(ledger: string, rows: readonly AnyRow[]): void {
    try {
      if (ledger === HOST_LEDGER) throw new Failure("ledger_broken", "it is the last one that there is");
      this.#feedOf(HOST_LEDGER).append(rows);
    } catch (thrown) {
      this.#parts.log("error", "rows were lost", {
        vm_id: ledger,
        rows: rows.length,
        tables: [...new Set(rows.map(({ table }) => table))],
        cause: messageOf(thrown),
      });
    }
  }

  #waitingRows(): number {
    return [...this.#feeds.values()].reduce((sum, { waiting }) => sum + waiting, 0);
  }
}

function isDiskFull(folder: string): boolean {
  const { bavail, bsize, ffree, files } = statfsSync(folder);
  return bavail * bsize < LEDGER_LIMITS.diskBytesMin || (files > 0 && ffree === 0);
}

const SHORT = { timeoutMs: LEDGER_LIMITS.readTimeoutMs };
/** The name of a checkpoint whose ledger was gone when it was set aside. */
const ARCHIVED_BEFORE = "missing";

function signalOf(signal: AbortSignal | undefined): { signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

/** A failure of a read, in the API's words. */
function readFailure(thrown: unknown, ledger: string | undefined): unknown {
  if (!(thrown instanceof Failure)) return thrown;
  const id = ledger ?? HOST_LEDGER;
  switch (thrown.kind) {
    case "ledger_not_found":
      return apiFailure("ledger_not_found", `Cannot read the ledger of "${id}": there is none`, {
        cause: thrown,
      });
    case "peer_lost":
    case "timeout":
    case "too_many_streams":
    case "ledger_failed":
      return ledgerFailure("ledger_away", id, thrown.message);
    default:
      return thrown;
  }
}
