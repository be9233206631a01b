import { rm } from "node:fs/promises";
import { apiFailure, VM_REASONS, type VmReason } from "@capsem/api";
import { Failure, messageOf, within } from "@capsem/base";
import type { LoadedGolden } from "../golden/golden-build.ts";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { TIMES } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { Slot } from "../pool/pool.ts";
import type { Powers } from "../powers.ts";
import type { Launcher } from "./launch.ts";
import type { Vm } from "./vm.ts";

export interface BringUpParts {
  readonly powers: Pick<Powers, "monotonicMs">;
  readonly layout: HomeLayout;
  readonly launcher: Launcher;
  readonly log: ServiceLog;
}

/** Reasons that a user can do something about. */
const WHY: Readonly<Record<string, string>> = {
  confinement_refused:
    "confinement_refused: this machine cannot confine its processes (its log says what is missing); `confinement.allow_unconfined` in settings.toml starts it without",
};

/** A start that failed: the reason is the VM's, the message the user's. */
export class StartFailure extends Failure<"start_failed"> {
  readonly reason: VmReason | null;

  constructor(vm: Vm, reason: VmReason | null, thrown: unknown) {
    const why =
      WHY[reason ?? ""] ??
      reason ??
      (thrown instanceof Failure ? thrown.kind : "an internal error was logged");
    const tail = vm.logs?.tail(10) ?? [];
    const detail = [thrown instanceof Failure ? thrown.detail : undefined, messageOf(thrown), ...tail];
    super("start_failed", `Cannot start VM "${vm.id}": ${why}`, {
      cause: thrown,
      retryable: true,
      detail: detail.filter((line) => line !== undefined).join("\n"),
    });
    this.reason = reason;
  }
}

/** Of a start whose signal fired. */
export function startNotWanted(vm: Vm): Failure {
  return apiFailure("cancelled", `Cannot start VM "${vm.id}": it was stopped or deleted`);
}

/**
 * Gets a claimed owner for a VM in `starting`: from a pool slot, else by a launch; a corrupt golden is built
 * again once. Sets `vm.run` while it works. When it throws, no process of the VM is left.
 */
export async function bringUp(
  parts: BringUpParts,
  vm: Vm,
  slot: Slot | null,
  signal: AbortSignal,
): Promise<OwnerRun> {
  const { monotonicMs } = parts.powers;
  const startedMs = monotonicMs();
  const report = (source: "slot" | "fork" | "cold", readyMs: number) => {
    const claimMs = Math.round(monotonicMs() - readyMs);
    parts.log("info", "VM brought up", {
      ...{ vm_id: vm.id, source, ready_ms: Math.round(readyMs - startedMs), claim_ms: claimMs },
    });
  };
  if (slot?.run != null) {
    const claimed = await claimSlot(parts, vm, slot.run, signal);
    if (claimed !== null) {
      report("slot", startedMs);
      return claimed;
    }
  }
  for (let isRetry = false; ; isRetry = true) {
    let golden: LoadedGolden | null = null;
    try {
      const launched = await parts.launcher.launch({
        id: vm.id,
        imageDigest: vm.record.image,
        cpus: vm.record.cpus,
        memoryMib: vm.record.memory_mib,
        pool: false,
        onLogLine: (line) => vm.logs?.take(line),
        signal,
      });
      golden = launched.golden;
      vm.run = launched.run;
      await within(
        launched.run.ready,
        launched.readyTimeoutMs,
        () => bootTimeout(launched.readyTimeoutMs),
        signal,
      );
      const readyMs = monotonicMs();
      await claim(vm, launched.run, signal, TIMES.claimTimeoutMs);
      report(golden === null ? "cold" : "fork", readyMs);
      return launched.run;
    } catch (thrown) {
      const reason = await reasonOf(vm.run, thrown);
      await dropRun(vm);
      if (signal.aborted) throw startNotWanted(vm);
      if (reason === "checkpoint_corrupt" && golden !== null && !isRetry) {
        await parts.launcher.invalidateGolden(golden);
        continue;
      }
      throw new StartFailure(vm, reason, thrown);
    }
  }
}

/** Null when the slot let us down: its disk is made anew then, and the VM starts like any other. */
async function claimSlot(
  parts: BringUpParts,
  vm: Vm,
  run: OwnerRun,
  signal: AbortSignal,
): Promise<OwnerRun | null> {
  vm.run = run;
  try {
    await claim(vm, run, signal, TIMES.slotClaimTimeoutMs);
    return run;
  } catch (thrown) {
    await dropRun(vm);
    if (signal.aborted) throw startNotWanted(vm);
    parts.log("warning", "pool slot failed at its claim", { vm_id: vm.id, cause: messageOf(thrown) });
    const { image } = await parts.launcher.ground();
    await rm(vmFolder(parts.layout, vm.id).disk, { force: true });
    await parts.launcher.createDisk(image, vm.id);
    return null;
  }
}

async function claim(vm: Vm, run: OwnerRun, signal: AbortSignal, timeoutMs: number): Promise<void> {
  const env = Object.entries(vm.record.env).map(([key, value]) => `${key}=${value}`);
  await run.call("claim", { hostname: hostnameOf(vm), env }, { timeoutMs, signal });
}

function hostnameOf(vm: Vm): string {
  return vm.record.name ?? vm.id.replace("_", "-");
}

async function dropRun(vm: Vm): Promise<void> {
  const { run } = vm;
  vm.run = null;
  await run?.kill();
}

/** Why a start failed, in the words of a VM's end; null where there is none. */
export async function reasonOf(run: OwnerRun | null, thrown: unknown): Promise<VmReason | null> {
  if (run?.isLost) return (await run.lost).reason;
  if (!(thrown instanceof Failure)) return null;
  return VM_REASONS.find((reason) => reason === thrown.kind) ?? REASON_OF[thrown.kind] ?? null;
}

const REASON_OF: Readonly<Record<string, VmReason>> = {
  unresponsive: "boot_timeout",
  image_corrupt: "image_missing",
};

function bootTimeout(timeoutMs: number): Failure {
  return new Failure("boot_timeout", `Cannot start the VM: not ready within ${timeoutMs} ms`);
}
