import { messageOf } from "@capsem/base";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { killOrphans } from "../owner/process-record.ts";
import type { Powers } from "../powers.ts";
import { AFTER_RESTART, kindOfVm } from "./lifecycle-table.ts";
import { type FoundFolder, type Registry, readVmFolders } from "./registry.ts";
import { removeVmFiles } from "./remove-files.ts";
import { Vm } from "./vm.ts";

export interface RecoveryParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly registry: Registry;
  readonly log: ServiceLog;
}

/**
 * Makes the registry of what a former service left: kills its orphans, finishes what it began to create or
 * delete, and marks retained VMs that ran as stopped. A folder whose record cannot be read is left alone: it
 * may hold somebody's disk.
 */
export async function recover(parts: RecoveryParts): Promise<void> {
  const found = await readVmFolders(parts.layout);
  await Promise.all(found.map((folder) => recoverFolder(parts, folder)));
}

async function recoverFolder(parts: RecoveryParts, found: FoundFolder): Promise<void> {
  const { layout, powers, log } = parts;
  const paths = vmFolder(layout, found.id);
  const killed = await killOrphans(paths.processes, powers.processes);
  if (killed > 0) log("warning", "orphans killed", { vm_id: found.id, processes: killed });
  if (found.problem !== null) {
    log("error", "VM record cannot be read: its folder is left alone", {
      vm_id: found.id,
      cause: found.problem,
    });
    return;
  }
  const move = found.record === null ? "remove" : AFTER_RESTART[found.record.state][kindOfVm(found.record)];
  switch (move) {
    case "keep":
      return adopt(parts, found, false);
    case "stop":
      return adopt(parts, found, true);
    case "remove":
      return finishRemoval(parts, found);
  }
}

async function adopt(parts: RecoveryParts, found: FoundFolder, wasRunning: boolean): Promise<void> {
  const { registry, powers } = parts;
  if (found.record === null) return;
  const vm = new Vm(found.record, powers.monotonicMs());
  if (wasRunning) vm.record = { ...vm.record, state: "stopped", reason: "service_lost" };
  registry.add(vm);
  if (wasRunning) await registry.save(vm);
}

/** What resists is kept in the registry as deleting, where the sweep tries again. */
async function finishRemoval(parts: RecoveryParts, found: FoundFolder): Promise<void> {
  const { layout, registry, powers, log } = parts;
  try {
    await removeVmFiles(vmFolder(layout, found.id));
    log("info", "VM removed after a restart", { vm_id: found.id, state: found.record?.state ?? null });
  } catch (thrown) {
    log("error", "cannot remove files", { vm_id: found.id, cause: messageOf(thrown) });
    if (found.record === null) return;
    registry.add(new Vm({ ...found.record, state: "deleting" }, powers.monotonicMs()));
  }
}
