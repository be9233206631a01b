import { CapsemError } from "./error.ts";
import { SERVICE_PEER } from "./transport.ts";

const ABNORMAL_CLOSURE = 1006;

/** Why a stream ended: nobody that is still there ends one without a word. */
export function whyEnded({ code, reason }: { code: number; reason: string }, peer = SERVICE_PEER): string {
  if (code === ABNORMAL_CLOSURE) return `${peer} is gone`;
  return `the connection ended (${reason === "" ? `code ${code}` : reason})`;
}

/** The command was started or may have been, and who knew of its end does not answer any more. */
export function lostJob(why: string): CapsemError {
  return new CapsemError("unavailable", textOf(why), { outcome: "unknown" });
}

/** As `lostJob`, for an answer that broke off: there is no id to attach to. */
export function lostExec(cause: unknown): CapsemError {
  const why = "the service, or the gateway before it, is gone";
  return new CapsemError("unavailable", textOf(why), { cause, outcome: "unknown", retryable: false });
}

export function isLost(thrown: unknown): boolean {
  return thrown instanceof CapsemError && thrown.kind === "unavailable" && thrown.outcome === "unknown";
}

function textOf(why: string): string {
  return `Cannot follow job: ${why}; how the command ended is unknown`;
}
