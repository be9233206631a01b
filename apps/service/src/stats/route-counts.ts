import type { ErrorKind, ServiceStats } from "@capsem/api";
import type { Failure } from "@capsem/base";
import type { ActEvent, ActObserver } from "../act.ts";
import { STATS_LIMITS } from "../limits.ts";

interface Counts {
  calls: number;
  failed: number;
  /** The last durations, the oldest overwritten. */
  readonly durations: Float64Array;
}

/** What the choke point saw of each route since the service started. One entry a route, so bounded by the table. */
export class RouteCounts implements ActObserver {
  readonly #routes = new Map<string, Counts>();
  #inFlight = 0;

  began(): void {
    this.#inFlight += 1;
  }

  /** A requester that leaves is no failure of ours. */
  ended({ route }: ActEvent, durationMs: number, failure: Failure<ErrorKind> | null): void {
    this.#inFlight -= 1;
    const counts = this.#of(route);
    counts.durations[counts.calls % counts.durations.length] = durationMs;
    counts.calls += 1;
    if (failure !== null && failure.kind !== "cancelled") counts.failed += 1;
  }

  shown(): Pick<ServiceStats, "requests" | "routes"> {
    const routes = [...this.#routes].map(([route, counts]) => shownRoute(route, counts));
    const sum = (key: "calls" | "failed") => routes.reduce((total, row) => total + row[key], 0);
    return {
      requests: { total: sum("calls"), failed: sum("failed"), in_flight: this.#inFlight },
      routes: routes.sort((left, right) => right.calls - left.calls || (left.route < right.route ? -1 : 1)),
    };
  }

  #of(route: string): Counts {
    const known = this.#routes.get(route);
    if (known !== undefined) return known;
    const made = { calls: 0, failed: 0, durations: new Float64Array(STATS_LIMITS.durationsKept) };
    this.#routes.set(route, made);
    return made;
  }
}

function shownRoute(route: string, { calls, failed, durations }: Counts): ServiceStats["routes"][number] {
  const sorted = durations.slice(0, Math.min(calls, durations.length)).sort();
  const at = (share: number) => rounded(sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0);
  return { route, calls, failed, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) };
}

function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
