import { type ErrorKind, HOST_LEDGER, type LedgerHead } from "@capsem/api";
import { assert, Failure, messageOf } from "@capsem/base";
import type { AnyRow } from "../boundary/parts.ts";
import { type FeedParts, type FeedState, NO_ROOM } from "./feed-parts.ts";
import { ledgerFailure } from "./ledger-failure.ts";
import type { LedgerLink } from "./ledger-link.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { OpenActs } from "./open-acts.ts";
import { Retry } from "./retry.ts";
import { areEnds, areEssential, type Encoded, encoded, messageOfEncoded } from "./row-code.ts";
import { RowQueue } from "./row-queue.ts";
import { Waiters } from "./waiters.ts";

/**
 * The way of one ledger's rows to the ledger process: queued, sent one batch at a time, given up when they are
 * committed. What a process did not acknowledge, its successor gets again under the same generation and numbers.
 */
export class LedgerFeed {
  state: FeedState = "opening";
  reason: string | null = null;
  readonly ledger: string;
  readonly #parts: FeedParts;
  readonly #queue: RowQueue;
  readonly #waiters = new Waiters();
  #generation: string | null = null;
  /** Rows of this generation that are committed. */
  #acknowledged = 0;
  #bytes = 0;
  #openedOn: LedgerLink | null = null;
  /** A link that broke under us: the next one is waited for. */
  #lostOn: LedgerLink | null = null;
  #wants: "nothing" | "open" | "idle" = "nothing";
  #isClosing = false;
  /** Lent: its files are another's, and nothing is opened before `reset`. */
  #lending: "no" | "asked" | "lent" = "no";
  #existed: boolean | null = null;
  #walk: "none" | "asked" | "done" = "none";
  /** After a refused batch: so many rows are sent by those that belong together, to find what was refused. */
  #alone = 0;
  /** Rows of the batch that was sent last. */
  #sent = 0;
  /** Not even the reserve has room. */
  #isStuck = false;
  /** The disk has none for any ledger: the rows that were taken wait for some. */
  hasNoRoom = false;
  #probedMs = Number.NEGATIVE_INFINITY;
  readonly #acts = new OpenActs();
  #failingMs = 0;
  readonly #retry = new Retry();
  /** What somebody else found, until the driving loop comes to it. */
  #found: string | null = null;
  #isDriving = false;
  #isWakeSet = false;

  constructor(ledger: string, parts: FeedParts) {
    this.ledger = ledger;
    this.#parts = parts;
    this.#queue = new RowQueue(parts.weight);
  }

  get waiting(): number {
    return this.#queue.length;
  }

  /**
   * All or none. Throws why they are not taken. `isDue`: whoever tells of it was allowed to before it did it, so that a
   * full ledger takes it too.
   */
  append(rows: readonly AnyRow[], isDue = false): void {
    const isEssential = isDue || areEssential(rows);
    if (this.isBroken) throw this.failure("ledger_broken");
    // What was begun is ended in evidence, as soon as the disk has room again.
    if (this.#isStuck && !(this.hasNoRoom && areEnds(rows))) throw this.failure("ledger_full");
    const closed = isEssential ? null : this.#closed();
    if (closed !== null) throw closed;
    // What no ledger would take is refused here, before anything is done: nothing that was taken is ever lost.
    const made = rows.map(encoded);
    for (const { row, characters } of made) {
      assert(characters <= LEDGER_LIMITS.rowCharactersMax, `a row of ${row.table} is beyond every cap`);
    }
    if (!this.#queue.push(made, isEssential)) {
      throw ledgerFailure("ledger_away", this.ledger, "it does not keep up: too many rows wait for it");
    }
    for (const row of rows) this.#acts.note(row);
    // What begins wants it open again; what ends does not.
    if (this.#acts.size > 0 && this.#wants === "nothing") this.#wants = "open";
    // An intent is on its way before its act is; what ends an act, or is told by others, waits for more of this turn.
    if (!isDue && rows.some(({ table }) => table === "security_decision_events")) this.wake();
    else this.#wakeAfterThisTurn();
  }

  failure(kind: "ledger_away" | "ledger_full" | "ledger_broken"): Failure<ErrorKind> {
    const reason = this.#found ?? this.reason;
    return ledgerFailure(
      kind,
      this.ledger,
      kind === "ledger_full" ? reason : (reason ?? this.#parts.away().reason),
    );
  }

  /** Why nothing new is taken; null: it is, as far as is known. A full one is looked at again. */
  refusal(): Failure<ErrorKind> | null {
    if (this.isBroken) return this.failure("ledger_broken");
    return this.#isStuck ? this.failure("ledger_full") : this.#closed();
  }

  /** How full the queue is, 0 to 1 and more. */
  get load(): number {
    return this.#queue.load;
  }

  /** Resolves when it is known whether rows are taken; a full or broken ledger says so to `append`. */
  async ready(signal?: AbortSignal): Promise<void> {
    if (this.#isSettled()) return;
    this.#wants = "open";
    this.wake();
    await this.#waiters.until(
      () => this.#isSettled(),
      this.#parts.away().waitMs,
      () => this.failure("ledger_away"),
      signal,
    );
  }

  /**
   * Resolves when every row from the first was found to be what was written. Opened without a walk it is opened once
   * more, in the same generation. Throws "ledger_broken".
   */
  async checkWhole(signal?: AbortSignal): Promise<void> {
    if (this.isBroken) throw this.failure("ledger_broken");
    if (this.#walk === "done") return;
    this.#walk = "asked";
    this.#wants = "open";
    this.wake();
    const isWalked = () => {
      if (this.isBroken) throw this.failure("ledger_broken");
      if (this.hasNoRoom) throw this.failure("ledger_full");
      return this.#walk === "done";
    };
    const late = () => this.failure("ledger_away");
    await this.#waiters.until(isWalked, LEDGER_LIMITS.wholeTimeoutMs, late, signal);
  }

  /** Resolves when everything taken so far has left the queue: committed, or handed on because the ledger is broken. */
  async flush(signal?: AbortSignal, timeoutMs: number = LEDGER_LIMITS.flushTimeoutMs): Promise<void> {
    const { taken } = this.#queue;
    const isDone = () => {
      if (this.#queue.done >= taken) return true;
      if (this.#isStuck) throw this.failure("ledger_full");
      return false;
    };
    this.wake();
    await this.#waiters.until(isDone, timeoutMs, () => this.failure("ledger_away"), signal);
  }

  /**
   * Its VM runs no more: when the acts under way have ended, its files are closed. A later row opens it again, under
   * another generation.
   */
  closeWhenIdle(): void {
    this.#wants = "idle";
    this.wake();
  }

  /** Closes its files now; acts that have not ended are ended there as interrupted. */
  async close(timeoutMs: number = LEDGER_LIMITS.flushTimeoutMs): Promise<void> {
    if (this.#openedOn === null && this.#queue.length === 0 && !this.#isDriving) return;
    this.#wants = "nothing";
    this.#isClosing = true;
    this.wake();
    const isClosed = () => !this.#isClosing || this.state === "broken";
    await this.#waiters.until(isClosed, timeoutMs, () => this.failure("ledger_away"));
  }

  /** As `close`; what comes from then on waits for `reset`, or for `giveBack` of files that are as they were. */
  async lend(): Promise<void> {
    this.#lending = "asked";
    try {
      await this.close();
      this.#lending = "lent";
    } catch (thrown) {
      this.giveBack();
      throw thrown;
    }
  }

  giveBack(): void {
    this.#lending = "no";
    this.wake();
  }

  /** Somebody looked, and it is not what was written: no row is taken from now on. What is being sent is let end. */
  foundBroken(reason: string): void {
    if (this.isBroken) return;
    this.#found = reason;
    this.reason = reason;
    this.wake();
  }

  get isBroken(): boolean {
    return this.state === "broken" || this.#found !== null;
  }

  /** Somebody else had its files: what is there now is looked at before the next row. */
  reset(): void {
    this.#endGeneration();
    this.#retry.clear();
    this.#existed = null;
    this.#acts.clear();
    this.#isClosing = false;
    this.#lending = "no";
    // Who waits for it to be open waits for the new one.
    if (this.#walk !== "asked") this.#walk = "none";
    this.#found = null;
    this.#bytes = 0;
    this.#set("opening", null);
    this.#waiters.tell();
    if (this.#isUnused()) this.#parts.onClosed(this.ledger);
    else this.wake();
  }

  limitChanged(): void {
    this.#probedMs = Number.NEGATIVE_INFINITY;
    if (!this.hasNoRoom) {
      this.#isStuck = false;
      if (this.state === "ok" || this.state === "full") this.#measure(this.#bytes);
    }
    this.#retry.clear();
    this.wake();
  }

  /** Something may have come: a row, a wish, a link. Never throws, never waits. */
  wake(): void {
    if (this.#isDriving) return;
    this.#isDriving = true;
    void this.#drive();
  }

  #wakeAfterThisTurn(): void {
    if (this.#isWakeSet || this.#isDriving) return;
    if (this.#queue.length >= LEDGER_LIMITS.batchRowsMax) {
      this.wake();
      return;
    }
    this.#isWakeSet = true;
    setImmediate(() => {
      this.#isWakeSet = false;
      this.wake();
    });
  }

  async #drive(): Promise<void> {
    for (let step = this.#next(); step !== null; step = this.#next()) {
      const link = this.#parts.link();
      try {
        await step();
      } catch (thrown) {
        this.#failed(thrown, link);
      }
      this.#waiters.tell();
    }
    // Nothing waits between the last look and this.
    this.#isDriving = false;
  }

  #next(): (() => Promise<void>) | null {
    const [link, found] = [this.#parts.link(), this.#found];
    if (found !== null && this.state !== "broken") return async () => this.#break(found);
    const mayCall = this.state !== "broken" && this.#lending !== "lent" && !this.#retry.isSet;
    if (link === null || link === this.#lostOn || !mayCall) return null;
    const hasRows = this.#queue.length > 0;
    const isOpen = this.#openedOn === link && this.#walk !== "asked";
    if (!isOpen && (hasRows || this.#wants === "open")) return () => this.#open(link);
    if (hasRows) return () => this.#send(link);
    if (this.#isToClose()) return () => this.#close(link);
    if (this.state === "full" && this.#mayProbe()) return () => this.#probe(link);
    return null;
  }

  async #open(link: LedgerLink): Promise<void> {
    const { ledger } = this;
    this.#sent = 0;
    this.#existed ??= this.#parts.hasFiles(ledger);
    const { chain } = this.#parts;
    const checkpoint = chain.known ?? (await this.#parts.checkpoint(ledger));
    const hasPast = this.#existed || checkpoint !== null;
    const whole = this.#walk === "asked" && hasPast;
    this.#generation ??= this.#parts.newGeneration();
    chain.begin(checkpoint, this.#existed);
    chain.enter(this.#generation);
    const { rows, head, bytes, interrupted } = await link.call(
      "producer",
      "ledger.open",
      { ledger, generation: this.#generation, checkpoint, whole },
      { timeoutMs: LEDGER_LIMITS.wholeTimeoutMs },
    );
    await this.#follow(link, { rows, head });
    if (interrupted > 0) this.#parts.log("warning", "acts were interrupted", { vm_id: ledger, interrupted });
    this.#openedOn = link;
    // One of this service's own making has no row that was not written under its eyes.
    if (whole || !hasPast) this.#walk = "done";
    this.#learn({ rows, head }, bytes);
  }

  async #send(link: LedgerLink): Promise<void> {
    const rows = this.#queue.gather(this.#alone > 0);
    if (rows.length === 0 || this.#generation === null) return;
    const params = this.#batchOf(this.#generation, rows);
    this.#sent = rows.length;
    // Hashed while the ledger does the same, so that nobody has to believe it.
    const [{ rows: total, head, bytes }] = await Promise.all([
      link.call("producer", "ledger.append", params),
      this.#parts.chain.send(params.first, rows),
    ]);
    await this.#follow(link, { rows: total, head });
    this.#acknowledged += rows.length;
    this.#alone = Math.max(0, this.#alone - rows.length);
    this.#queue.drop(rows.length);
    this.#learn({ rows: total, head }, bytes);
  }

  async #close(link: LedgerLink): Promise<void> {
    if (this.#openedOn === link) {
      await this.#parts.keepHead(this.ledger);
      if (this.#queue.length > 0 || !this.#isToClose()) return;
      await link.call("producer", "ledger.close", { ledger: this.ledger });
    }
    this.#endGeneration();
    // A row that came meanwhile goes into the next one, and whoever wants it open by now gets the next one.
    if (this.#wants === "idle") this.#wants = "nothing";
    this.#isClosing = false;
    if (this.#lending === "asked") this.#lending = "lent";
    this.#set("opening", null);
    if (this.#isUnused()) this.#parts.onClosed(this.ledger);
  }

  #isUnused(): boolean {
    return this.#queue.length === 0 && this.#wants === "nothing";
  }

  #isToClose(): boolean {
    return this.#isClosing || (this.#wants === "idle" && this.#acts.size === 0);
  }

  /** Whether it is full is for the ledger to say: part of its size may be a log that it can write back. */
  async #probe(link: LedgerLink): Promise<void> {
    if (this.#generation === null) return;
    this.#probedMs = this.#parts.monotonicMs();
    this.#sent = 0;
    const none = this.#batchOf(this.#generation, []);
    const { rows, head, bytes } = await link.call("producer", "ledger.append", none);
    await this.#follow(link, { rows, head });
    this.#learn({ rows, head }, bytes);
  }

  #batchOf(generation: string, rows: readonly Encoded[]) {
    return { ledger: this.ledger, generation, first: this.#acknowledged + 1, ...messageOfEncoded(rows) };
  }

  #mayProbe(): boolean {
    return this.#parts.monotonicMs() - this.#probedMs >= LEDGER_LIMITS.probeIntervalMs;
  }

  #endGeneration(): void {
    this.#openedOn = null;
    this.#generation = null;
    this.#acknowledged = 0;
    this.#unstick();
  }

  #unstick(): void {
    if (this.hasNoRoom) this.#parts.log("info", "a ledger has room again", { vm_id: this.ledger });
    this.#isStuck = false;
    this.hasNoRoom = false;
  }

  /** No head is signed that is not what was sent. */
  #follow(link: LedgerLink, head: LedgerHead): Promise<void> {
    const { ledger } = this;
    return this.#parts.chain.follow(head, async (after, until) => {
      const { rows } = await link.call("producer", "ledger.rows", { ledger, after, until });
      return rows;
    });
  }

  #learn(head: LedgerHead, bytes: number): void {
    this.#retry.succeeded();
    this.#unstick();
    this.#measure(bytes);
    this.#parts.onHead(this.ledger, head);
  }

  #measure(bytes: number): void {
    this.#bytes = bytes;
    this.#set(bytes >= this.#parts.bytesMax(this.ledger) ? "full" : "ok", null);
  }

  #failed(thrown: unknown, link: LedgerLink | null): void {
    const kind = thrown instanceof Failure ? thrown.kind : "internal";
    const reason = messageOf(thrown);
    switch (kind) {
      case "peer_lost":
        this.#lostOn = link;
        break;
      case "too_many_streams":
        // Hundreds of ledgers at once, and nothing is wrong with this one.
        this.#retry.later(() => this.wake());
        break;
      case "ledger_broken":
      case "ledger_gap":
        this.#break(reason);
        break;
      case "bad_row":
      case "too_large":
        if (this.#alone > 0 || this.#sent === 1) this.#giveUp(this.#sent, reason);
        else this.#alone = this.#sent;
        break;
      case "ledger_full":
        this.#full();
        break;
      case "disk_full":
        this.#noRoom();
        break;
      default:
        if (kind === "ledger_failed" && this.#parts.isDiskFull()) this.#noRoom();
        else this.#failing(kind, reason);
    }
  }

  #failing(kind: string, cause: string): void {
    if (this.state !== "failing") this.#failingMs = this.#parts.monotonicMs();
    this.#set("failing", cause);
    this.#parts.log("error", "the ledger failed", { vm_id: this.ledger, kind, cause });
    this.#retry.later(() => this.wake());
  }

  /** Nothing of the batch is stored, for one row in it. What does not fit alone is not lost: the service's own has it. */
  #full(): void {
    this.#set("full", null);
    if (this.#alone === 0 && this.#sent > 1) this.#alone = this.#sent;
    else if (this.ledger !== HOST_LEDGER && this.#sent > 0) {
      this.#alone = Math.max(0, this.#alone - this.#sent);
      this.#parts.handOn(this.ledger, this.#queue.drop(this.#sent));
    } else {
      this.#isStuck = this.#queue.length > 0;
      this.#retry.later(() => this.wake());
    }
  }

  /** Nothing of the batch is stored, and no other ledger has room either. It is tried again. */
  #noRoom(): void {
    if (!this.hasNoRoom) this.#parts.log("error", "a ledger has no room on the disk", { vm_id: this.ledger });
    this.#set("full", NO_ROOM);
    this.#isStuck = true;
    this.hasNoRoom = true;
    this.#retry.later(() => this.wake());
  }

  /** Taken, and unfit for every ledger: a mistake of ours, which must not hold up what comes behind. */
  #giveUp(count: number, reason: string): void {
    const rows = this.#queue.drop(count);
    this.#alone = Math.max(0, this.#alone - count);
    const tables = rows.map(({ table }) => table);
    this.#parts.log("error", "rows were lost", { vm_id: this.ledger, tables, cause: reason });
  }

  #break(reason: string): void {
    this.#set("broken", reason);
    const rows = this.#queue.drop(this.#queue.length);
    this.#endGeneration();
    this.#parts.log("error", "a ledger is broken", { vm_id: this.ledger, rows: rows.length, cause: reason });
    if (rows.length > 0) this.#parts.handOn(this.ledger, rows);
  }

  #set(state: FeedState, reason: string | null): void {
    this.state = state;
    this.reason = reason;
  }

  #isSettled(): boolean {
    if (this.isBroken || this.hasNoRoom) return true;
    const isOpen = this.#openedOn !== null && this.#openedOn === this.#parts.link();
    return isOpen && this.#openedOn !== this.#lostOn && (this.state === "ok" || this.state === "full");
  }

  /** For what begins. A restart is over before this refuses; a disk that fails is not waited for either. */
  #closed(): Failure<ErrorKind> | null {
    if (this.state === "full") {
      if (this.#mayProbe()) this.wake();
      return this.failure("ledger_full");
    }
    const { ms, waitMs } = this.#parts.away();
    const failingMs = this.state === "failing" ? this.#parts.monotonicMs() - this.#failingMs : 0;
    return ms > waitMs || failingMs > waitMs ? this.failure("ledger_away") : null;
  }
}
