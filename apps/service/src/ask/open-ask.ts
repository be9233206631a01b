import { timingSafeEqual } from "node:crypto";
import type { AskInfo } from "@capsem/api";
import { type Deferred, defer } from "@capsem/base";
import type { AskEnd, Asked } from "../boundary/parts.ts";
import { type AskRecord, infoOf } from "./ask-record.ts";
import { type AskedEvent, firstEvent } from "./ask-row.ts";

/** How one call's wait ends; `again`: the approval served another call, so that this one asks anew. */
export type CallEnd = AskEnd["state"] | "again";

/** A call that waits. */
export interface HeldCall {
  readonly event: AskedEvent;
  /** Once. */
  finish(end: CallEnd): void;
}

/** An ask in memory, with the calls that wait for it in the order that they came. */
export class OpenAsk {
  record: AskRecord;
  readonly calls: HeldCall[] = [];
  stopTimer: () => void = () => undefined;
  /** Somebody resolves it: pending until that has happened or failed. */
  claim: Deferred<void> | null = null;
  /** Its time came while somebody resolved it: if that fails it ends, for this reason. */
  overdue: { readonly note: string | null } | null = null;
  /** Its last caller left while somebody resolved it: if that fails it ends, unless another one waits by then. */
  left: { readonly note: string | null } | null = null;
  /** Of an approval that no call waited for, by the steady clock. */
  usableUntilMs = Number.NEGATIVE_INFINITY;
  /** A client asks the person itself: callers that wait for it elsewhere, and leave, do not end it. */
  isLeftOpen = false;
  /** What it was about is gone. */
  isForgotten = false;

  readonly #hasVm: (id: string) => boolean;

  constructor(record: AskRecord, hasVm: (id: string) => boolean) {
    this.record = record;
    this.#hasVm = hasVm;
  }

  get id(): string {
    return this.record.ask.id;
  }

  get isPending(): boolean {
    return this.record.ask.state === "pending";
  }

  get info(): AskInfo {
    return infoOf(this.record, { isHeld: this.calls.length > 0, hasVm: this.isOfLivingVm });
  }

  /** Of a VM that is only being made there is none yet. */
  get isOfLivingVm(): boolean {
    const { vm_id } = this.record.ask;
    return vm_id !== null && !this.isForgotten && this.#hasVm(vm_id);
  }

  /** An approval for the VM, which holds as long as the VM is there. */
  get isStanding(): boolean {
    const { state, scope } = this.record.ask;
    return state === "approved" && scope === "vm" && this.isOfLivingVm;
  }

  /** An approval that waits for a retry. */
  isUsable(nowMs: number): boolean {
    const { state, scope, is_used } = this.record.ask;
    return state === "approved" && scope === "once" && !is_used && this.usableUntilMs > nowMs;
  }

  /** The same act, held by the same rule. The digest says type, VM and arguments. */
  isAbout({ digest, decision }: Asked): boolean {
    const { ask } = this.record;
    if (ask.rule_id !== decision.rule_id) return false;
    const [own, other] = [Buffer.from(ask.digest), Buffer.from(digest)];
    return own.length === other.length && timingSafeEqual(own, other);
  }

  /** The act of those who wait for it. One that makes a VM is another act for each VM that it would make. */
  get event(): AskedEvent {
    return this.calls[0]?.event ?? firstEvent(this.record);
  }

  /** Adds a call; the promise resolves when something calls its `finish`. `stop` undoes what watches it. */
  add(event: AskedEvent, stop: () => void): { call: HeldCall; ended: Promise<CallEnd> } {
    const ended = defer<CallEnd>();
    const call: HeldCall = {
      event,
      finish: (end) => {
        stop();
        const at = this.calls.indexOf(call);
        if (at >= 0) this.calls.splice(at, 1);
        ended.resolve(end);
      },
    };
    this.calls.push(call);
    return { call, ended: ended.promise };
  }
}
