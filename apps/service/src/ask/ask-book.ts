import { type AskInfo, apiFailure } from "@capsem/api";
import { type Deferred, defer, messageOf, within } from "@capsem/base";
import type { PolicyEdit } from "@capsem/policy";
import type { ActContext } from "../act.ts";
import type { AskEnd, Asked, Asks, LedgerWriter, Redactor } from "../boundary/parts.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { visibleLine } from "../log/visible.ts";
import { alwaysRule } from "./always-rule.ts";
import { alreadyOver, checkQuota, checkScope, type Resolution } from "./ask-checks.ts";
import { AskFiles } from "./ask-files.ts";
import type { AskRecord } from "./ask-record.ts";
import { type AskedEvent, askedEvent, askRow, firstEvent, resolverText } from "./ask-row.ts";
import { ASK_LIMITS } from "./limits.ts";
import { newAsk } from "./new-ask.ts";
import { type CallEnd, OpenAsk } from "./open-ask.ts";
import type { StartTimer } from "./timer.ts";

export interface AskParts {
  /** Of the home: this user's alone. */
  readonly folder: string;
  readonly ledger: Pick<LedgerWriter, "appendAll" | "ready">;
  readonly redactor: Redactor;
  readonly log: ServiceLog;
  readonly nowMs: () => number;
  readonly monotonicMs: () => number;
  readonly random: (bytes: number) => Uint8Array;
  readonly startTimer: StartTimer;
  /** `asks.timeout_secs` and `asks.unattended_secs` of this moment. */
  readonly waits: () => { readonly timeoutMs: number; readonly unattendedMs: number };
  /** How many follow the events: whether anybody would see it. */
  readonly watcherCount: () => number;
  /** An ask was made, resolved or used. */
  readonly tell: (ask: AskInfo) => void;
  /** Writes the user's rule; it holds when this resolves. Throws what an edit throws. */
  readonly writeRule: (context: ActContext, edit: PolicyEdit) => Promise<void>;
  readonly hasVm: (id: string) => boolean;
}

/** Decisions that wait for a person (docs/asks.md, docs/decisions/0019-asks.md). */
export class AskBook implements Asks {
  readonly #parts: AskParts;
  readonly #files: AskFiles;
  /** In the order that they were made. */
  readonly #asks = new Map<string, OpenAsk>();
  #isClosed = false;

  private constructor(parts: AskParts, files: AskFiles) {
    this.#parts = parts;
    this.#files = files;
  }

  /** What was asked before this service began goes on, with the deadline that it had. */
  static async open(parts: AskParts): Promise<AskBook> {
    const files = new AskFiles(parts.folder, parts.log);
    const book = new AskBook(parts, files);
    const records = await files.load();
    records.sort((a, b) => (a.ask.created_at < b.ask.created_at ? -1 : 1));
    for (const record of records) book.#resume(new OpenAsk(record, parts.hasVm));
    return book;
  }

  async hold(asked: Asked, context: ActContext): Promise<AskEnd> {
    const { monotonicMs } = this.#parts;
    const { timeLeftMs, signal } = context;
    const deadlineMs = timeLeftMs === null ? null : monotonicMs() + timeLeftMs - ASK_LIMITS.reserveMs;
    const event = askedEvent(asked, context, this.#parts.redactor);
    for (;;) {
      if (this.#isClosed) throw stopping("ask");
      if (signal.aborted) throw apiFailure("cancelled", "Cannot ask: the caller has left");
      const approval = this.#approvalFor(asked);
      if (approval !== undefined) return this.#use(approval, event);
      if (asked.isLater === true) return this.#leaveOpen(asked, event);
      const ask = this.#join(asked, event) ?? this.#make(asked, event, this.#waitMs(deadlineMs));
      const end = await this.#wait(ask, event, deadlineMs, signal);
      if (end !== "again") return { state: end, ask: ask.info };
    }
  }

  /** The newest first. */
  list(state?: AskInfo["state"]): AskInfo[] {
    const all = [...this.#asks.values()].map(({ info }) => info).reverse();
    return state === undefined ? all : all.filter((ask) => ask.state === state);
  }

  /**
   * Approves or denies what waits, once: of two who do, the second is told who was first. The state is in the ledger and
   * a rule for "always" in force before the held call goes on. Throws "ask_not_found", "wrong_state", "locked",
   * "invalid_input", and what the ledger and an edit of rules throw: then it waits on.
   */
  async resolve(id: string, given: Resolution, context: ActContext): Promise<AskInfo> {
    const { ask, claim } = await this.#claim(id, context.signal);
    try {
      checkScope(given, ask);
      await this.#parts.ledger.ready(ask.event.ledger, context.signal);
      if (given.scope === "always") await this.#parts.writeRule(context, alwaysRule(ask.record));
      if (this.#isClosed) throw stopping("resolve an ask");
      this.#settle(ask, given, context);
    } finally {
      ask.claim = null;
      claim.resolve();
      const isWaitedFor = ask.calls.length > 0 || ask.isLeftOpen;
      const why = ask.overdue ?? (isWaitedFor ? null : ask.left);
      ask.left = null;
      if (why !== null) this.#expire(ask, why.note);
    }
    // Whether the disk takes it or not, it holds; what does not take it says so in the log.
    await this.#files.save(ask.record).catch(() => undefined);
    return ask.info;
  }

  /** The VM is gone: nothing waits for it, and no approval for it counts. */
  forgetVm(id: string): void {
    for (const ask of this.#asks.values()) {
      if (ask.record.ask.vm_id !== id) continue;
      ask.isForgotten = true;
      if (ask.isPending) this.#expire(ask, "the VM is gone");
    }
  }

  /** Now and then: records what a ledger that was away did not take, and removes what is over for long. */
  async sweep(): Promise<void> {
    const { nowMs, monotonicMs } = this.#parts;
    for (const ask of this.#asks.values()) if (!ask.record.is_recorded) this.#recordAgain(ask);
    const newest = [...this.#asks.values()].reverse();
    const standing = newest.filter(({ isStanding }) => isStanding);
    for (const ask of standing.slice(ASK_LIMITS.standingMax)) ask.isForgotten = true;
    const over = newest.filter((ask) => !ask.isPending && !ask.isStanding && !ask.isUsable(monotonicMs()));
    const old = over.filter(({ record }, at) => {
      const endedMs = Date.parse(record.ask.resolved_at ?? record.ask.created_at);
      return at >= ASK_LIMITS.keptMax || nowMs() - endedMs > ASK_LIMITS.keptMs;
    });
    for (const { id } of old) this.#asks.delete(id);
    await Promise.allSettled(old.map(({ id }) => this.#files.remove(id)));
  }

  /** The service stops: calls end, asks stay as they are for the next one. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const ask of this.#asks.values()) {
      ask.stopTimer();
      for (const call of [...ask.calls]) call.finish("cancelled");
    }
    await this.#files.settled();
  }

  #resume(ask: OpenAsk): void {
    const { nowMs, monotonicMs } = this.#parts;
    const { expires_at, resolved_at } = ask.record.ask;
    this.#asks.set(ask.id, ask);
    if (ask.isPending) {
      // A clock that was set back must not keep it for ever.
      this.#watch(ask, Math.min(Date.parse(expires_at) - nowMs(), ASK_LIMITS.waitMsMax));
    } else if (resolved_at !== null) {
      const leftMs = Date.parse(resolved_at) + ASK_LIMITS.retryMs - nowMs();
      ask.usableUntilMs = monotonicMs() + Math.min(leftMs, ASK_LIMITS.retryMs);
    }
  }

  #watch(ask: OpenAsk, waitMs: number): void {
    ask.stopTimer = this.#parts.startTimer(Math.max(0, waitMs), () => this.#expire(ask, null));
  }

  #approvalFor(asked: Asked): OpenAsk | undefined {
    const { monotonicMs } = this.#parts;
    const all = [...this.#asks.values()];
    const isOfVm = (ask: OpenAsk) => ask.record.ask.vm_id === asked.vm?.id && ask.isStanding;
    return (
      all.find((ask) => isOfVm(ask) && ask.isAbout(asked)) ??
      all.find((ask) => ask.isUsable(monotonicMs()) && ask.isAbout(asked))
    );
  }

  /** Serves one act by an approval of before; that it was used is on the disk before it is done. */
  async #use(ask: OpenAsk, event: AskedEvent): Promise<AskEnd> {
    const before = ask.record;
    const isOnce = before.ask.scope === "once";
    // Before anything waits: the next call must not find it unused.
    if (isOnce) ask.record = { ...before, ask: { ...before.ask, is_used: true } };
    try {
      this.#append(ask.record, [event]);
    } catch (thrown) {
      ask.record = before;
      throw thrown;
    }
    if (isOnce) {
      this.#parts.tell(ask.info);
      await this.#files.save(ask.record);
    }
    return { state: "approved", ask: ask.info };
  }

  #join(asked: Asked, event: AskedEvent): OpenAsk | undefined {
    const isFree = ({ calls }: OpenAsk) => calls.length === 0 || calls[0]?.event.ledger === event.ledger;
    const ask = [...this.#asks.values()].find(
      (each) => each.isPending && isFree(each) && each.isAbout(asked),
    );
    if (ask === undefined) return undefined;
    if (ask.calls.length >= ASK_LIMITS.callsMax) {
      throw apiFailure("quota", `Cannot ask: ${ask.calls.length} calls wait for the same answer already`);
    }
    this.#append(ask.record, [event]);
    return ask;
  }

  /** Somebody is being asked by the client itself, so it waits as if it were watched. */
  #leaveOpen(asked: Asked, event: AskedEvent): AskEnd {
    const joined = this.#join(asked, event);
    const ask = joined ?? this.#make(asked, event, this.#parts.waits().timeoutMs);
    ask.isLeftOpen = true;
    if (joined === undefined) this.#parts.tell(ask.info);
    return { state: "pending", ask: ask.info };
  }

  #waitMs(deadlineMs: number | null): number {
    const { monotonicMs, watcherCount, waits } = this.#parts;
    const { timeoutMs, unattendedMs } = waits();
    const leftMs = deadlineMs === null ? Number.POSITIVE_INFINITY : deadlineMs - monotonicMs();
    return Math.max(0, Math.min(leftMs, watcherCount() > 0 ? timeoutMs : unattendedMs));
  }

  #make(asked: Asked, event: AskedEvent, waitMs: number): OpenAsk {
    const { vm, isLater = false } = asked;
    const vmId = vm !== null && this.#parts.hasVm(vm.id) ? vm.id : null;
    checkQuota([...this.#asks.values()], { vmId, isLater, who: event.who });
    const ask = new OpenAsk(newAsk(this.#parts, asked, event, waitMs), this.#parts.hasVm);
    this.#append(ask.record, [event]);
    this.#asks.set(ask.id, ask);
    this.#watch(ask, waitMs);
    // Held in memory whatever the disk says: only a restart would miss it.
    void this.#files.save(ask.record).catch(() => undefined);
    return ask;
  }

  #wait(ask: OpenAsk, event: AskedEvent, deadlineMs: number | null, signal: AbortSignal): Promise<CallEnd> {
    const { startTimer, monotonicMs, tell } = this.#parts;
    const onAbort = () => leave("cancelled", "the caller left");
    const stopTimer =
      deadlineMs === null
        ? () => undefined
        : startTimer(Math.max(0, deadlineMs - monotonicMs()), () => leave("expired", null));
    const { call, ended } = ask.add(event, () => {
      stopTimer();
      signal.removeEventListener("abort", onAbort);
    });
    const leave = (end: "cancelled" | "expired", note: string | null) => {
      if (ask.calls.length === 1 && ask.claim === null && !ask.isLeftOpen) {
        this.#expire(ask, note, end);
        return;
      }
      call.finish(end);
      // Left open, it waits for nobody now: whoever follows the events is told.
      if (ask.calls.length === 0 && ask.isPending && ask.isLeftOpen) tell(ask.info);
      // The others wait on; if it was the last one, whoever is resolving it decides what becomes of it.
      if (ask.calls.length === 0) ask.left = { note };
    };
    signal.addEventListener("abort", onAbort, { once: true });
    tell(ask.info);
    return ended;
  }

  /** Whose claim it is resolves it, and nobody else does meanwhile. */
  async #claim(id: string, signal: AbortSignal): Promise<{ ask: OpenAsk; claim: Deferred<void> }> {
    for (;;) {
      const ask = this.#asks.get(id);
      if (ask === undefined) throw apiFailure("ask_not_found", `Cannot find ask "${id}": no such ask`);
      if (!ask.isPending) throw alreadyOver(ask.record);
      if (this.#isClosed) throw stopping("resolve an ask");
      if (ask.claim === null) {
        // In the same moment as it was looked at: of two who looked, only one finds it free.
        ask.claim = defer();
        return { ask, claim: ask.claim };
      }
      const isBusy = () => apiFailure("timeout", `Cannot resolve ask "${id}": another is resolving it`);
      await within(ask.claim.promise, ASK_LIMITS.claimMs, isBusy, signal);
    }
  }

  /** The resolution itself, all at once: recorded, then in force. */
  #settle(ask: OpenAsk, given: Resolution, context: ActContext): void {
    const { nowMs, monotonicMs, redactor, tell } = this.#parts;
    const isHeld = ask.calls.length > 0;
    const scope = given.approve ? (given.scope ?? "once") : null;
    const note = given.note === undefined ? null : redactor.text(given.note).text;
    const record: AskRecord = {
      ...ask.record,
      ask: {
        ...ask.record.ask,
        state: given.approve ? "approved" : "denied",
        scope,
        is_used: scope === "once" && isHeld,
        resolver: redactor.text(resolverText(context)).text,
        note: note === null ? null : visibleLine(note, ASK_LIMITS.reasonCharactersMax),
        resolved_at: new Date(nowMs()).toISOString(),
      },
      always: null,
    };
    // An approval for once serves the call that has waited longest.
    const served = scope === "once" ? ask.calls.slice(0, 1) : [...ask.calls];
    this.#append(record, [ask.event, ...served.slice(1).map(({ event }) => event)]);
    ask.record = record;
    ask.stopTimer();
    if (scope === "once" && !isHeld) ask.usableUntilMs = monotonicMs() + ASK_LIMITS.retryMs;
    for (const call of [...ask.calls]) {
      if (!served.includes(call)) call.finish("again");
      else call.finish(given.approve ? "approved" : "denied");
    }
    tell(ask.info);
  }

  /** Nobody has decided. It counts at once, because it allows nothing; a ledger that is away is told later. */
  #expire(ask: OpenAsk, note: string | null, end: "expired" | "cancelled" = "expired"): void {
    if (!ask.isPending) return;
    if (ask.claim !== null) {
      ask.overdue ??= { note };
      return;
    }
    const { record } = ask;
    const resolved_at = new Date(this.#parts.nowMs()).toISOString();
    const calls = [...ask.calls];
    ask.record = { ...record, ask: { ...record.ask, state: "expired", note, resolved_at }, always: null };
    ask.stopTimer();
    this.#record(ask, [ask.event, ...calls.slice(1).map(({ event }) => event)]);
    for (const call of calls) call.finish(end);
    this.#parts.tell(ask.info);
    void this.#files.save(ask.record).catch(() => undefined);
  }

  #record(ask: OpenAsk, events: readonly [AskedEvent, ...AskedEvent[]]): void {
    const { is_recorded } = ask.record;
    try {
      this.#append(ask.record, events);
      ask.record = { ...ask.record, is_recorded: true };
    } catch (thrown) {
      ask.record = { ...ask.record, is_recorded: false };
      // Said once, and tried again at each sweep.
      if (!is_recorded) return;
      const cause = messageOf(thrown);
      this.#parts.log("warning", "cannot record the end of an ask yet", { ask_id: ask.id, cause });
    }
  }

  #recordAgain(ask: OpenAsk): void {
    this.#record(ask, [firstEvent(ask.record)]);
    if (ask.record.is_recorded) void this.#files.save(ask.record).catch(() => undefined);
  }

  /** All are acts of one ledger. */
  #append(record: AskRecord, events: readonly [AskedEvent, ...AskedEvent[]]): void {
    const timeMs = this.#parts.nowMs();
    const rows = events.map((event) => ({
      table: "security_ask_events" as const,
      row: askRow(record, event, timeMs),
    }));
    this.#parts.ledger.appendAll(events[0].ledger, rows);
  }
}

function stopping(what: string): Error {
  return apiFailure("unavailable", `Cannot ${what}: the service is stopping`);
}
