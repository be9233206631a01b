import { type ErrorKind, toApiFailure } from "@capsem/api";
import type { ServiceLog } from "./log/service-log.ts";

/** Who asks: the local user on the Unix socket, or a front that names itself. */
export interface Principal {
  readonly kind: "user" | "gateway";
  readonly name: string;
}

export interface ActContext {
  readonly requester: Principal;
  /** A traceparent, passed on as it is. */
  readonly trace: string | undefined;
  /** The caller's deadline; null when it set none. */
  readonly timeLeftMs: number | null;
  /** Aborts when the requester is gone or its time is over. */
  readonly signal: AbortSignal;
}

/** What is done, by ids alone. */
export interface ActEvent {
  readonly route: string;
  readonly mutates: boolean;
  readonly vmId: string | null;
}

/** The one choke point around every route. Rules and ledger will live here; nobody else calls a VM. */
export type Act = <T>(context: ActContext, event: ActEvent, work: () => Promise<T>) => Promise<T>;

export function createAct(log: ServiceLog, monotonicMs: () => number): Act {
  return async (context, event, work) => {
    const startedMs = monotonicMs();
    const record = (result: "ok" | ErrorKind, detail?: string) => {
      log(result === "internal" ? "error" : "info", "act", {
        route: event.route,
        vm_id: event.vmId,
        requester: context.requester.name,
        trace: context.trace,
        duration_ms: Math.round((monotonicMs() - startedMs) * 1000) / 1000,
        result,
        detail,
      });
    };
    try {
      const value = await work();
      record("ok");
      return value;
    } catch (thrown) {
      const failure = toApiFailure(thrown);
      record(failure.kind, failure.detail);
      throw failure;
    }
  };
}
