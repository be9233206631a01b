import type { RouteName } from "@capsem/api";
import {
  IMPLIED_MARGIN_MS,
  IMPLIED_TIMEOUT_MS_MIN,
  JOB_MARGIN_MS,
  REACH_MARGIN_MS,
  START_MARGIN_MS,
} from "./limits.ts";

/** A tool server may have to be reached first. */
const REACHING: readonly RouteName[] = ["mcpCall", "mcpRefresh"];
const STARTING: readonly RouteName[] = ["create", "run", "start"];
/** A command in a VM: it ends when its call does. */
export const JOBS: readonly RouteName[] = ["exec", "run"];

/** A call's deadline and its client's cancel, as one signal for what carries it out. */
export interface CallLimit {
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  /** Which of the two came first. */
  readonly endedBy: "cancelled" | "timeout" | null;
  /** Rejects when the call is to end; never resolves. */
  readonly ended: Promise<never>;
  release(): void;
}

/** The arguments of a command with the time limit that it has when it names none. */
export function withTimeout(
  route: RouteName,
  args: Readonly<Record<string, unknown>>,
  timeoutMs: number,
): Readonly<Record<string, unknown>> {
  if (!JOBS.includes(route) || args.timeout_secs !== undefined) return args;
  return { ...args, timeout_secs: impliedMs(timeoutMs) / 1000 };
}

function impliedMs(timeoutMs: number): number {
  return Math.max(timeoutMs - IMPLIED_MARGIN_MS, IMPLIED_TIMEOUT_MS_MIN);
}

/**
 * `timeout_secs` bounds work in the guest, and its answer may take a little longer; all else has the server's limit.
 * `args` are as they came, without an implied time limit.
 */
export function timeoutOf(
  route: RouteName,
  args: Readonly<Record<string, unknown>>,
  timeoutMs: number,
): number {
  const secs = args.timeout_secs;
  const plainMs = JOBS.includes(route) ? impliedMs(timeoutMs) + IMPLIED_MARGIN_MS : timeoutMs;
  const workMs = typeof secs === "number" ? Math.ceil(secs * 1000) + JOB_MARGIN_MS : plainMs;
  if (REACHING.includes(route)) return workMs + REACH_MARGIN_MS;
  return STARTING.includes(route) ? workMs + START_MARGIN_MS : workMs;
}

export function limitCall(cancel: AbortSignal, timeoutMs: number): CallLimit {
  const controller = new AbortController();
  let endedBy: CallLimit["endedBy"] = null;
  let fail: (reason: unknown) => void = () => undefined;
  const ended = new Promise<never>((_, reject) => {
    fail = reject;
  });
  ended.catch(() => undefined);
  const end = (why: "cancelled" | "timeout") => {
    if (endedBy !== null) return;
    endedBy = why;
    controller.abort(new Error(why));
    fail(new Error(why));
  };
  const onCancel = () => end("cancelled");
  const timer = setTimeout(() => end("timeout"), timeoutMs);
  if (cancel.aborted) onCancel();
  else cancel.addEventListener("abort", onCancel, { once: true });
  return {
    signal: controller.signal,
    timeoutMs,
    get endedBy() {
      return endedBy;
    },
    ended,
    release: () => {
      clearTimeout(timer);
      cancel.removeEventListener("abort", onCancel);
    },
  };
}
