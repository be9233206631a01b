import { join } from "node:path";
import type { SpawnPlan } from "@capsem/api";
import { NODE_ENVIRONMENT } from "@capsem/jail";
import { type Grants, launchWords, qemuReadPaths, qemuWritePaths } from "@capsem/native";
import { VM_LIMITS } from "../limits.ts";

/** What runs the owner, of which kind it is on every machine. */
export interface OwnerProgram {
  readonly nodeBinary: string;
  readonly bundle: string;
  /** What Node, the bundle and the addon beside it need: found once, the same for every owner. */
  readonly grants: Required<Grants>;
  readonly servicePid: number;
  readonly isRoot: boolean;
}

/** Where an owner keeps what it writes: the one folder that it may. */
export function ownerFolder(vmFolder: string): string {
  return join(vmFolder, "jobs");
}

/**
 * The words that start an owner confined: Landlock before Node has threads, no network, no other descriptor. Its
 * hypervisor's launcher narrows the same domain, so what the hypervisor needs is granted here too.
 */
export function ownerWords(program: OwnerProgram, plan: SpawnPlan): { file: string; args: string[] } {
  const node = program.grants;
  const qemu = qemuReadPaths(plan.qemu_binary);
  const { rpc, kernel, initrd, memory, ...others } = plan.descriptors;
  const kept = [rpc, kernel, initrd, memory, ...Object.values(others)];
  return launchWords(
    {
      parentPid: program.servicePid,
      command: program.nodeBinary,
      args: [program.bundle],
      grants: {
        read: [...node.read, ...qemu.read],
        exec: [...node.exec, ...qemu.exec, plan.launcher],
        write: [
          ...qemuWritePaths(plan.accelerator === "kvm" ? "kvm" : "tcg"),
          ...node.write,
          ownerFolder(plan.folder),
        ],
      },
      // The hypervisor opens these once more through /proc: its launcher can grant only what is granted here.
      readFds: plan.kind === "fork" ? [] : [kernel, initrd],
      writeFds: memory === undefined ? [] : [memory],
      keepFds: kept.filter((fd) => fd !== undefined),
      openFilesMax: VM_LIMITS.ownerOpenFilesMax,
      landlock: plan.allow_unconfined ? "try" : "require",
      netNamespace: "try",
      env: NODE_ENVIRONMENT,
      // To give its hypervisor another user, to end it, and to be its death: a dying parent's signal needs the right.
      ...(program.isRoot ? { asRoot: true, capabilities: ["setuid", "setgid", "kill"] as const } : {}),
    },
    plan.launcher,
  );
}
