import type { AskInfo, Panic } from "@capsem/api";
import { messageOf } from "@capsem/base";
import { EventHub } from "./events/event-hub.ts";
import type { HomeLayout } from "./home/layout.ts";
import { OldLogs } from "./log/old-logs.ts";
import type { ServiceLog } from "./log/service-log.ts";
import type { Powers } from "./powers.ts";
import { RouteCounts } from "./stats/route-counts.ts";
import { FindingBook } from "./trouble/finding-book.ts";
import { type StartsOwners, watchedStarter } from "./trouble/owner-watch.ts";
import { writePanic } from "./trouble/panic.ts";
import type { Registry } from "./vm/registry.ts";
import type { VmCounts } from "./vm/vm-watch.ts";

/** What the service sees of itself since it started: counts, findings, followers of its events. */
export interface Observation {
  readonly startedAt: string;
  readonly startedMs: number;
  readonly counts: VmCounts;
  readonly routes: RouteCounts;
  readonly findings: FindingBook;
  readonly events: EventHub;
}

/** What is seen through the eyes of others. */
export interface ObservationParts {
  /** Those that wait. */
  readonly asks: () => readonly AskInfo[];
  /** Replaces secrets in what findings say. */
  readonly redact: (text: string) => string;
}

export function createObservation(
  powers: Powers,
  registry: Registry,
  { asks, redact }: ObservationParts = { asks: () => [], redact: (text) => text },
): Observation {
  const startedAt = new Date(powers.nowMs()).toISOString();
  return {
    startedAt,
    startedMs: powers.monotonicMs(),
    counts: { created: 0, deleted: 0, failed: 0, jobsStarted: 0 },
    routes: new RouteCounts(),
    findings: new FindingBook(powers.nowMs, redact),
    events: new EventHub({ nowMs: powers.nowMs, startedAt, vms: () => registry.list(), asks }),
  };
}

/** Owners that fail leave a panic on the disk, and where the disk does not take it, in the log at least. */
export function observedStarter(
  starter: StartsOwners,
  { findings }: Observation,
  layout: HomeLayout,
  powers: Powers,
  log: ServiceLog,
): StartsOwners {
  const keepPanic = (panic: Panic) => {
    try {
      writePanic(layout.panics, panic);
    } catch (thrown) {
      log("error", "cannot keep a panic", { ...panic, cause: messageOf(thrown) });
    }
  };
  return watchedStarter({ starter, findings, nowMs: powers.nowMs, keepPanic, log });
}

export function oldLogsOf(layout: HomeLayout, powers: Powers, registry: Registry): OldLogs {
  return new OldLogs({
    layout,
    nowMs: powers.nowMs,
    monotonicMs: powers.monotonicMs,
    vmIds: () => registry.list().map(({ id }) => id),
    isWriting(id) {
      if (!registry.has(id)) return false;
      // Without an owner nobody writes, and the files are closed.
      const { run, starting } = registry.get(id);
      return run !== null || starting !== null;
    },
  });
}
