import type { RouteName } from "@capsem/api";
import { JOB_MARGIN_MS, START_MARGIN_MS } from "./limits.ts";

const STARTING: readonly RouteName[] = ["create", "run", "start"];

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

/** `timeout_secs` bounds work in the guest, and its answer may take a little longer; all else has the server's limit. */
export function timeoutOf(
  route: RouteName,
  args: Readonly<Record<string, unknown>>,
  timeoutMs: number,
): number {
  const secs = args.timeout_secs;
  const workMs = typeof secs === "number" ? Math.ceil(secs * 1000) + JOB_MARGIN_MS : timeoutMs;
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
