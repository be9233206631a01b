import type { VmInfo } from "@capsem/api";
import { VM_LIMITS } from "../limits.ts";
import type { Vm } from "./vm.ts";

/** A VM as clients see it: names of its environment, never values. */
export function vmInfoOf(vm: Vm): VmInfo {
  const { record, run } = vm;
  return {
    id: record.id,
    name: record.name,
    state: record.state,
    reason: record.reason,
    health: healthOf(vm),
    cpus: record.cpus,
    memory_gib: record.memory_mib / 1024,
    created_at: record.created_at,
    started_at: record.started_at,
    image: record.image,
    env_names: Object.keys(record.env).sort(),
    disk: {
      allocated_bytes: vm.diskAllocatedBytes,
      allocated_bytes_max: VM_LIMITS.diskAllocatedBytesMax,
    },
    ...(record.state === "failed" && run === null ? { log_tail: vm.logs?.tail() ?? [...vm.keptTail] } : {}),
  };
}

export function healthOf(vm: Vm): VmInfo["health"] {
  return vm.record.state === "running" && vm.run !== null ? { ...vm.run.health } : null;
}
