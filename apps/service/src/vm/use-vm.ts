import { apiFailure } from "@capsem/api";
import { Failure, within } from "@capsem/base";
import { TIMES } from "../limits.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import type { Vm } from "./vm.ts";

/** Work inside a VM: waits for a start under way, counts as activity, refuses what cannot answer. */
export async function useVm<T>(
  vm: Vm,
  nowMs: () => number,
  signal: AbortSignal,
  work: (run: OwnerRun) => Promise<T>,
): Promise<T> {
  vm.activeCount += 1;
  try {
    if (vm.starting !== null) await waitForStart(vm, signal);
    const { run, record } = vm;
    if (record.state !== "running" || run === null) {
      throw apiFailure("wrong_state", `Cannot work in VM "${vm.id}": it is ${record.state}`);
    }
    if (run.health.owner === "unresponsive") {
      throw apiFailure("unresponsive", `Cannot work in VM "${vm.id}": it does not answer`);
    }
    return await work(run);
  } finally {
    vm.activeCount -= 1;
    vm.lastActiveMs = nowMs();
  }
}

async function waitForStart(vm: Vm, signal: AbortSignal): Promise<void> {
  const limitMs = TIMES.goldenTimeoutMs + TIMES.coldStartTimeoutMs;
  try {
    await within(vm.starting ?? Promise.resolve(), limitMs, undefined, signal);
  } catch (thrown) {
    if (thrown instanceof Failure && thrown.kind === "cancelled" && signal.aborted) throw thrown;
    throw apiFailure("vm_gone", `Cannot work in VM "${vm.id}": its start failed`, { cause: thrown });
  }
}
