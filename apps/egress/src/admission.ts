import { type ContractResult, EGRESS_SERVICE_METHODS } from "@capsem/api";
import { Failure, type Slots } from "@capsem/base";
import type { CallOptions } from "@capsem/rpc";
import type { AdmissionRequest } from "./dialler.ts";
import type { LeaseEnd } from "./lease.ts";
import { EGRESS_LIMITS } from "./limits.ts";

export interface AdmissionParts {
  readonly call: (method: "egress.admit", params: unknown, options: CallOptions) => Promise<unknown>;
  readonly done: (end: LeaseEnd) => void;
  readonly slots: Slots;
  /** A name that no other lease of this process has. */
  readonly newLease: () => string;
}

type Admitted = ContractResult<typeof EGRESS_SERVICE_METHODS, "egress.admit">;

/** After these nobody here knows whether it was admitted: the answer may have been under way. */
const UNANSWERED: ReadonlySet<string> = new Set(["cancelled", "timeout", "internal"]);

/** Asks the service for `client`. Whatever becomes of the answer, no lease of it stays open. */
export async function admit(
  { call, done, slots, newLease }: AdmissionParts,
  client: string,
  { server, url, method, headers, traceId, timeoutMs }: AdmissionRequest,
  signal: AbortSignal | undefined,
): Promise<Admitted> {
  const place = slots.take(signal);
  if (place === null) {
    throw new Failure("upstream_failed", "Cannot fetch: too many requests wait to be admitted", {
      retryable: true,
    });
  }
  const leave = await place;
  const lease = newLease();
  try {
    const params = { client, lease, server, url, method, headers, trace_id: traceId };
    const answer = await call("egress.admit", params, {
      // A person may be asked about one that rules judge: its caller's time counts.
      ...(server !== null
        ? { timeoutMs: EGRESS_LIMITS.admitTimeoutMs }
        : timeoutMs === null
          ? {}
          : { timeoutMs }),
      ...(signal === undefined ? {} : { signal }),
    });
    return EGRESS_SERVICE_METHODS["egress.admit"].result.parse(answer);
  } catch (thrown) {
    if (!(thrown instanceof Failure) || UNANSWERED.has(thrown.kind)) {
      done({ lease, status: null, bytes_sent: 0, bytes_received: 0, duration_ms: 0, error: "cancelled" });
    }
    throw thrown;
  } finally {
    leave();
  }
}
