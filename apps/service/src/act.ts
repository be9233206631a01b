import { type ErrorKind, toApiFailure } from "@capsem/api";
import type { Failure } from "@capsem/base";
import type { ServiceLog } from "./log/service-log.ts";

/** Who asks: the local user on the Unix socket, a front that names itself, or a program in a VM. */
export interface Principal {
  readonly kind: "user" | "gateway" | "guest";
  readonly name: string;
}

export interface ActContext {
  readonly requester: Principal;
  /** What the client calls itself, as it said; nobody has checked it. */
  readonly client: string | null;
  /** Of the gateway's token: the first 8 hex digits of its SHA-256. Null on the Unix socket. */
  readonly tokenId: string | null;
  /** A traceparent: the client's, or one that was made for this request. */
  readonly trace: string;
  /** The 32 hex digits in it: what the rows of one request have in common. */
  readonly traceId: string;
  /** The turn of a conversation that it belongs to, as the client said. */
  readonly turn: string | null;
  /**
   * `later`: refused at once where a rule asks, because the client asks the person itself and calls again. `own`, of who
   * follows the events: it looks for asks of its own calls, and shows no others to anybody.
   */
  readonly asks: "hold" | "later" | "own";
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

/** The one choke point around every route. Inside it the boundary judges and records; nobody else calls a VM. */
export type Act = <T>(context: ActContext, event: ActEvent, work: () => Promise<T>) => Promise<T>;

/** Counts what passes through; never throws. */
export interface ActObserver {
  began(event: ActEvent): void;
  ended(event: ActEvent, durationMs: number, failure: Failure<ErrorKind> | null): void;
}

/** As rows and rules have it: `user uid 1000`, `gateway`, `service`. */
export function requesterText({ kind, name }: Principal): string {
  return kind === name ? kind : `${kind} ${name}`;
}

export function createAct(
  log: ServiceLog,
  monotonicMs: () => number,
  observers: readonly ActObserver[] = [],
): Act {
  return async (context, event, work) => {
    const startedMs = monotonicMs();
    for (const observer of observers) observer.began(event);
    const record = (failure: Failure<ErrorKind> | null) => {
      const durationMs = monotonicMs() - startedMs;
      log(failure?.kind === "internal" ? "error" : "info", "act", {
        route: event.route,
        vm_id: event.vmId,
        requester: context.requester.name,
        trace: context.trace,
        duration_ms: Math.round(durationMs * 1000) / 1000,
        result: failure?.kind ?? "ok",
        detail: failure?.detail,
      });
      for (const observer of observers) observer.ended(event, durationMs, failure);
    };
    try {
      const value = await work();
      record(null);
      return value;
    } catch (thrown) {
      const failure = toApiFailure(thrown);
      record(failure);
      throw failure;
    }
  };
}
