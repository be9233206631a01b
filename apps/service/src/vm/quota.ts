import { apiFailure, type CreateRequest, checkEnv } from "@capsem/api";
import type { Settings } from "@capsem/policy";
import type { HomeLayout } from "../home/layout.ts";
import { VM_LIMITS } from "../limits.ts";
import type { Powers } from "../powers.ts";
import { IS_LIVE } from "./lifecycle-table.ts";
import type { Vm } from "./vm.ts";

const MIB = 1024 * 1024;

export interface Shape {
  readonly cpus: number;
  readonly memoryMib: number;
}

/** Says no before anything is made, with the numbers. */
export class Quota {
  readonly #powers: Powers;
  readonly #settings: () => Settings;
  readonly #layout: HomeLayout;

  /** `settings` answers with what holds at that moment. */
  constructor(powers: Powers, settings: () => Settings, layout: HomeLayout) {
    this.#powers = powers;
    this.#settings = settings;
    this.#layout = layout;
  }

  get defaultShape(): Shape {
    const { "limits.default_cpus": cpus, "limits.default_memory_gib": memoryGib } = this.#settings();
    return { cpus, memoryMib: memoryGib * 1024 };
  }

  shapeOf(request: Pick<CreateRequest, "cpus" | "memory_gib" | "env">): Shape {
    const { cpus, memoryMib } = this.defaultShape;
    const asked = {
      cpus: request.cpus ?? cpus,
      memoryMib: request.memory_gib === undefined ? memoryMib : request.memory_gib * 1024,
    };
    const cpusMax = this.#powers.hostCpus;
    if (asked.cpus > cpusMax) {
      throw apiFailure("invalid_input", `Cannot create a VM: ${asked.cpus} cpus asked, limit ${cpusMax}`);
    }
    const memoryMax = this.#settings()["limits.memory_gib_max"] * 1024;
    if (asked.memoryMib > memoryMax || asked.memoryMib < VM_LIMITS.memoryGibMin * 1024) {
      throw apiFailure(
        "invalid_input",
        `Cannot create a VM: ${asked.memoryMib / 1024} GiB asked, limits ${VM_LIMITS.memoryGibMin} to ${memoryMax / 1024}`,
      );
    }
    const problem = checkEnv(request.env ?? {});
    if (problem !== null) throw apiFailure("invalid_input", `Cannot set the environment: ${problem}`);
    return asked;
  }

  /** One more living VM of this shape beside `vms`. Synchronous, so that check and reservation are one step. */
  checkRunning(vms: readonly Vm[], shape: Shape): void {
    const live = vms.filter(({ record }) => IS_LIVE[record.state]);
    const runningMax = this.#settings()["limits.running_max"];
    if (live.length >= runningMax) {
      throw apiFailure("quota", `Cannot start a VM: ${live.length} run, limit ${runningMax}`);
    }
    let promisedMib = shape.memoryMib + VM_LIMITS.overheadMib;
    let usedBytes = 0;
    for (const { record, run } of live) {
      promisedMib += record.memory_mib + VM_LIMITS.overheadMib;
      const pid = run?.hypervisorPid ?? null;
      if (pid !== null) usedBytes += this.#powers.processes.privateBytes(pid);
    }
    // What VMs use already is not available any more, but it is part of what they were promised.
    const availableMib = (this.#powers.availableMemoryBytes() + usedBytes) / MIB;
    const limitMib = Math.floor(availableMib * VM_LIMITS.memoryShare);
    if (promisedMib > limitMib) {
      throw apiFailure(
        "quota",
        `Cannot start a VM: ${promisedMib} MiB would be promised to VMs, limit ${limitMib} (75 % of available memory)`,
      );
    }
  }

  checkRetained(vms: readonly Vm[]): void {
    const retained = vms.filter((vm) => vm.isRetained).length;
    const retainedMax = this.#settings()["limits.retained_max"];
    if (retained >= retainedMax) {
      throw apiFailure("quota", `Cannot retain a VM: ${retained} are retained, limit ${retainedMax}`);
    }
  }

  async checkDisk(): Promise<void> {
    const freeBytes = await this.#powers.freeDiskBytes(this.#layout.vms);
    if (freeBytes < VM_LIMITS.diskFloorBytes) {
      const [free, floor] = [freeBytes, VM_LIMITS.diskFloorBytes].map((bytes) => Math.floor(bytes / MIB));
      throw apiFailure(
        "disk_floor",
        `Cannot start a VM: ${free} MiB of disk are free, ${floor} MiB must stay free`,
      );
    }
  }
}
