import { Failure, within } from "@capsem/base";
import type { Views } from "../catalog/views.ts";
import { PROXY_LIMITS } from "../limits.ts";
import type { RailParts } from "../parts.ts";
import type { Recorder } from "../record/recorder.ts";
import type { Caller } from "./caller.ts";
import type { FairSlots, Release } from "./fair-slots.ts";
import type { HeldCalls } from "./held-calls.ts";
import type { Links } from "./links.ts";
import type { Taints } from "./taints.ts";

/** What requests that go to servers share. */
export interface CallParts extends RailParts {
  readonly views: Views;
  readonly slots: FairSlots;
  readonly taints: Taints;
  readonly held: HeldCalls;
  readonly links: Links;
  readonly recorder: Recorder;
}

/** What is left of the caller's time; never nothing, because a wait of nothing is one without end elsewhere. */
export function timeLeftMs(caller: Caller, parts: Pick<CallParts, "clock">): number {
  const left = Math.ceil(caller.deadlineMs - parts.clock.monotonicMs());
  // What is listened to has no end; what is done for it has.
  return Math.min(Math.max(1, left), PROXY_LIMITS.callTimeoutMs);
}

/**
 * Undefined: its intent is taken or refused at once. Else resolves when there is room for it; it is judged then, by the
 * rules of that moment. `text`: its payload.
 */
export function roomFor(text: string, caller: Caller, parts: CallParts): Promise<void> | undefined {
  return parts.recorder.room(Buffer.byteLength(text), timeLeftMs(caller, parts), caller.signal);
}

/** A place to run in, within the caller's time. What it throws is as of `FairSlots.take`. */
export function placeFor(caller: Caller, parts: CallParts): Promise<Release> {
  return parts.slots.take(caller.owner, caller.signal, timeLeftMs(caller, parts));
}

/** Throws the reason of the caller's signal, or Failure("timeout"). */
export async function waitFor<T>(
  work: Promise<T>,
  caller: Caller,
  parts: Pick<CallParts, "clock">,
): Promise<T> {
  try {
    const late = () => new Failure("timeout", "Cannot answer: the time of the request is over");
    return await within(work, timeLeftMs(caller, parts), late, caller.signal);
  } catch (thrown) {
    throw caller.signal.aborted ? caller.signal.reason : thrown;
  }
}
