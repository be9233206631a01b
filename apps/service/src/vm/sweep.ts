import { messageOf } from "@capsem/base";
import type { Settings } from "@capsem/policy";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { TIMES, VM_LIMITS } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { Machinery } from "../machinery.ts";
import type { Powers } from "../powers.ts";
import { folderUse } from "./folder-use.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { Registry } from "./registry.ts";
import type { Vm } from "./vm.ts";

export interface SweepParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly machinery: Pick<Machinery, "diskAllocatedBytes">;
  /** What holds at that moment. */
  readonly settings: () => Settings;
  readonly registry: Registry;
  readonly lifecycle: Pick<Lifecycle, "end" | "remove">;
  readonly log: ServiceLog;
}

/** What time does to VMs: disk quota, idle and lifetime limits, failed ones kept for a while, deletions retried. */
export class Sweep {
  readonly #parts: SweepParts;

  constructor(parts: SweepParts) {
    this.#parts = parts;
  }

  /** One pass. VMs are judged beside each other: one that hangs holds up none. */
  async pass(): Promise<void> {
    await Promise.all(
      this.#parts.registry.list().map(async (vm) => {
        try {
          await this.#judge(vm);
        } catch (thrown) {
          this.#parts.log("error", "sweep failed", { vm_id: vm.id, cause: messageOf(thrown) });
        }
      }),
    );
  }

  async sampleDisk(vm: Vm): Promise<void> {
    const { disk, jobs } = vmFolder(this.#parts.layout, vm.id);
    const [diskBytes, use] = await Promise.all([
      this.#parts.machinery.diskAllocatedBytes(disk).catch(() => 0),
      folderUse(jobs, VM_LIMITS.jobEntriesMax),
    ]);
    vm.diskAllocatedBytes = diskBytes + use.allocatedBytes;
    vm.jobEntries = use.entries;
  }

  async #judge(vm: Vm): Promise<void> {
    const { lifecycle } = this.#parts;
    const { state } = vm.record;
    if (state === "deleting" && vm.removing === null) return lifecycle.remove(vm);
    if (state === "failed" && !vm.isRetained && this.#isFailedLongEnough(vm)) {
      return lifecycle.remove(vm, "failed");
    }
    if (state !== "running") return;
    await this.sampleDisk(vm);
    if (isOverQuota(vm)) return lifecycle.end(vm, "disk_quota");
    if (this.#isTooOld(vm)) return lifecycle.end(vm, "lifetime");
    if (await this.#isIdle(vm)) return lifecycle.end(vm, "idle");
  }

  #isFailedLongEnough(vm: Vm): boolean {
    return vm.failedMs !== null && this.#parts.powers.monotonicMs() - vm.failedMs >= TIMES.failedKeptMs;
  }

  #isTooOld(vm: Vm): boolean {
    if (vm.isRetained || vm.startedMs === null) return false;
    const ageMs = this.#parts.powers.monotonicMs() - vm.startedMs;
    return ageMs >= this.#parts.settings()["limits.lifetime_secs"] * 1000;
  }

  /** A running job is activity, also one that nobody reads: the owner is asked before the VM is taken away. */
  async #isIdle(vm: Vm): Promise<boolean> {
    const { powers, settings } = this.#parts;
    const isQuiet = () => {
      const idleMs = settings()["limits.idle_secs"] * 1000;
      return vm.activeCount === 0 && powers.monotonicMs() - vm.lastActiveMs >= idleMs;
    };
    if (!isQuiet() || vm.run === null) return false;
    const { jobs } = await vm.run.call("job.list", {}, { timeoutMs: TIMES.pingTimeoutMs });
    if (jobs.some((job) => job.state === "running")) {
      vm.lastActiveMs = powers.monotonicMs();
      return false;
    }
    return isQuiet();
  }
}

/** The owner writes its folder itself: what a broken one writes there is bounded here and nowhere else. */
function isOverQuota({ diskAllocatedBytes, jobEntries }: Vm): boolean {
  return diskAllocatedBytes > VM_LIMITS.diskAllocatedBytesMax || jobEntries > VM_LIMITS.jobEntriesMax;
}
