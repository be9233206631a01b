import type { ServiceStats } from "@capsem/api";
import { TIMES } from "../limits.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { Pool } from "../pool/pool.ts";
import type { Powers } from "../powers.ts";
import type { Registry } from "../vm/registry.ts";
import type { VmCounts } from "../vm/vm-watch.ts";
import type { RouteCounts } from "./route-counts.ts";

export interface StatsParts {
  readonly powers: Powers;
  readonly registry: Registry;
  readonly pool: Pool;
  readonly routes: RouteCounts;
  readonly counts: VmCounts;
  readonly startedAt: string;
  readonly startedMs: number;
}

/** Costs one small read of /proc a process and one short call an owner, all at once; both are bounded by the limit of VMs. */
export async function serviceStatsOf(parts: StatsParts): Promise<ServiceStats> {
  const { powers, registry, pool, counts } = parts;
  const vms = registry.list();
  const runs = vms.flatMap(({ run }) => (run === null ? [] : [run]));
  const running = vms.filter(({ record }) => record.state === "running").length;
  return {
    started_at: parts.startedAt,
    uptime_secs: Math.round(powers.monotonicMs() - parts.startedMs) / 1000,
    ...parts.routes.shown(),
    vms: {
      running,
      total: vms.length,
      created: counts.created,
      deleted: counts.deleted,
      failed: counts.failed,
    },
    pool: { claimed: pool.claimedCount, missed: pool.missedCount },
    jobs: { running: await runningJobs(runs), started: counts.jobsStarted },
    memory: memoryOf(powers, [...runs, ...pool.runs()]),
  };
}

/** An owner that does not answer in time has none that we know of. Asking is no activity of the VM. */
async function runningJobs(runs: readonly OwnerRun[]): Promise<number> {
  const asked = runs.map(async (run) => {
    const { jobs } = await run.call("job.list", {}, { timeoutMs: TIMES.pingTimeoutMs });
    return jobs.filter((job) => job.state === "running").length;
  });
  const answers = await Promise.allSettled(asked);
  return answers.reduce((total, each) => total + (each.status === "fulfilled" ? each.value : 0), 0);
}

function memoryOf({ processes, pid }: Powers, runs: readonly OwnerRun[]): ServiceStats["memory"] {
  const sum = (pids: readonly (number | null)[]) =>
    pids.reduce<number>((total, each) => total + (each === null ? 0 : processes.residentBytes(each)), 0);
  return {
    service_bytes: processes.residentBytes(pid),
    owners_bytes: sum(runs.map((run) => run.pid)),
    hypervisors_bytes: sum(runs.map((run) => run.hypervisorPid)),
  };
}
