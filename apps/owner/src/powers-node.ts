import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { writeSync } from "node:fs";
import type { SpawnPlan } from "@capsem/api";
import { hypervisorFilter, OWNER_PROFILE, prepareSeal } from "@capsem/jail";
import { launchWords, native, qemuReadPaths, qemuWritePaths } from "@capsem/native";
import { HYPERVISOR_ENVIRONMENT, inheritedDescriptors, reopenedDescriptors } from "@capsem/vmm";
import { createLog } from "@capsem/worker";
import { OWNER_LIMITS } from "./limits.ts";
import type { OwnerPowers } from "./powers.ts";

const QEMU_OPEN_FILES_MAX = 256;

export function nodePowers(): Omit<OwnerPowers, "onHealth" | "onTraffic"> {
  const now = () => performance.timeOrigin + performance.now();
  const writeLog = (line: string) => {
    try {
      writeSync(2, line);
    } catch {
      // The service reads our log; when it is gone, or slow to take it, a line is lost and the VM goes on.
      return;
    }
  };
  return {
    spawn,
    writeLog,
    now,
    log: createLog("owner", writeLog, now),
    random: (bytes) => randomBytes(bytes),
    sendDescriptors: (socket, payload, descriptors) => native().sendDescriptors(socket, payload, descriptors),
    launcherArguments: (plan) => launcherArguments(plan),
    prepareSeal: (plan) =>
      prepareSeal(OWNER_PROFILE, {
        native: native(),
        arch: process.arch,
        selfPid: process.pid,
        otherPid: process.ppid,
        fileBytesMax: OWNER_LIMITS.jobOutputBytesMax,
        allowUnconfined: plan.allow_unconfined,
      }),
  };
}

/** QEMU gets its own libraries to read, its inherited descriptors, and nothing else. */
function launcherArguments(plan: SpawnPlan): readonly string[] {
  const reopened = reopenedDescriptors(plan);
  const filter = hypervisorFilter(process.arch);
  const { args } = launchWords(
    {
      parentPid: process.pid,
      command: plan.qemu_binary,
      args: [],
      ...(plan.uid === null ? {} : { user: { uid: plan.uid, gid: plan.uid } }),
      grants: {
        ...qemuReadPaths(plan.qemu_binary),
        write: qemuWritePaths(plan.accelerator === "kvm" ? "kvm" : "tcg"),
      },
      readFds: reopened.read,
      writeFds: reopened.write,
      keepFds: inheritedDescriptors(plan),
      env: HYPERVISOR_ENVIRONMENT,
      openFilesMax: QEMU_OPEN_FILES_MAX,
      // A domain inside our own: it can only be narrower.
      landlock: plan.allow_unconfined ? "try" : "require",
      // Our own launcher entered an empty one, which the hypervisor inherits.
      netNamespace: "off",
      // It stands where there is no such namespace, and before Unix sockets, which none of that covers.
      ...(filter === null ? {} : { filter }),
    },
    plan.launcher,
  );
  // The hypervisor's own path follows from who spawns it.
  return args.slice(0, -1);
}
