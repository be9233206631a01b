import { messageOf } from "@capsem/base";
import type { UnaskedEnd } from "../boundary/unasked-end.ts";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { readLogTail } from "../log/vm-logs.ts";
import { killOrphans } from "../owner/process-record.ts";
import type { Powers } from "../powers.ts";
import { AFTER_RESTART, kindOfVm } from "./lifecycle-table.ts";
import type { VmRecord } from "./record.ts";
import { type FoundFolder, type Registry, readVmFolders } from "./registry.ts";
import { removeVmFiles } from "./remove-files.ts";
import { standInRecord } from "./stand-in-record.ts";
import { Vm } from "./vm.ts";

export interface RecoveryParts {
  readonly layout: HomeLayout;
  readonly powers: Powers;
  readonly registry: Registry;
  readonly log: ServiceLog;
  /** Told of what became of VMs with the service that was lost. */
  readonly unasked: UnaskedEnd;
}

/**
 * Makes the registry of what a former service left: kills its orphans, finishes what it began to create or
 * delete, and marks retained VMs that ran as stopped. A folder whose record cannot be read is left as it is: it
 * may hold somebody's disk. It is listed as failed, so that its user learns of it.
 */
export async function recover(parts: RecoveryParts): Promise<void> {
  const found = await readVmFolders(parts.layout);
  const unreadable = await Promise.all(found.map((folder) => recoverFolder(parts, folder)));
  // Last, so that a name which a readable record has too is that one's.
  for (const folder of unreadable) if (folder !== null) await adoptUnreadable(parts, folder);
}

/** Answers with the folder when its record cannot be used. */
async function recoverFolder(parts: RecoveryParts, found: FoundFolder): Promise<FoundFolder | null> {
  const { layout, powers, log, registry } = parts;
  const killed = await killOrphans(vmFolder(layout, found.id).processes, powers.processes);
  if (killed > 0) log("warning", "orphans killed", { vm_id: found.id, processes: killed });
  if (found.problem !== null) return found;
  if (found.record === null) {
    await finishRemoval(parts, found);
    return null;
  }
  const move = AFTER_RESTART[found.record.state][kindOfVm(found.record)];
  if (move === "remove") {
    await finishRemoval(parts, found);
    return null;
  }
  if (!registry.isNameFree(found.record.name)) return { ...found, problem: "another VM has its name" };
  await adopt(parts, found.record, move === "stop");
  return null;
}

async function adopt(parts: RecoveryParts, record: VmRecord, wasRunning: boolean): Promise<void> {
  const { registry, powers, layout } = parts;
  const vm = new Vm(record, powers.monotonicMs());
  if (wasRunning) vm.record = { ...vm.record, state: "stopped", reason: "service_lost" };
  // Before anything waits: the name was free just now.
  registry.add(vm);
  if (record.state === "failed") {
    // Only the wall clock spans two services; from here on the steady one counts.
    const ageMs = powers.nowMs() - Date.parse(record.failed_at ?? record.created_at);
    vm.failedMs = powers.monotonicMs() - (Number.isFinite(ageMs) ? Math.max(0, ageMs) : 0);
    vm.keptTail = await readLogTail(vmFolder(layout, vm.id).logs);
  }
  if (!wasRunning) return;
  await registry.save(vm);
  parts.unasked(vm, "stop", "service_lost", "done");
}

async function adoptUnreadable(parts: RecoveryParts, found: FoundFolder): Promise<void> {
  const { layout, powers, registry, log } = parts;
  log("error", "VM record cannot be read: its folder is left alone", {
    vm_id: found.id,
    cause: found.problem,
  });
  const paths = vmFolder(layout, found.id);
  const record = await standInRecord(found.id, paths);
  const name = registry.isNameFree(record.name) ? record.name : null;
  const vm = new Vm({ ...record, name }, powers.monotonicMs(), false);
  vm.keptTail = [`vm.json: ${found.problem}`, ...(await readLogTail(paths.logs))];
  registry.add(vm);
}

/** What resists is kept in the registry as deleting, where the sweep tries again. */
async function finishRemoval(parts: RecoveryParts, found: FoundFolder): Promise<void> {
  const { layout, registry, powers, log } = parts;
  try {
    await removeVmFiles(vmFolder(layout, found.id));
    log("info", "VM removed after a restart", { vm_id: found.id, state: found.record?.state ?? null });
    if (found.record !== null) parts.unasked({ record: found.record }, "delete", "service_lost", "done");
  } catch (thrown) {
    log("error", "cannot remove files", { vm_id: found.id, cause: messageOf(thrown) });
    if (found.record === null) return;
    registry.add(new Vm({ ...found.record, state: "deleting" }, powers.monotonicMs()));
  }
}
