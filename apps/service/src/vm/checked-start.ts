import { ignore } from "@capsem/base";
import type { OwnerRun } from "../owner/owner-run.ts";
import { type BringUpParts, bringUp } from "./bring-up.ts";
import type { Vm } from "./vm.ts";

/** Rejects where a VM's ledger is not what was written, or nobody can say. */
export type CheckLedger = (id: string, signal: AbortSignal) => Promise<void>;

/**
 * As `bringUp`, for a VM that has a past. The walk over its ledger goes on beside the boot; where that ledger is broken
 * the VM does not come to run.
 */
export async function bringUpChecked(
  parts: BringUpParts & { readonly checkLedger: CheckLedger },
  vm: Vm,
  signal: AbortSignal,
): Promise<OwnerRun> {
  const checked = parts.checkLedger(vm.id, signal);
  ignore(checked);
  const run = await bringUp(parts, vm, null, signal);
  try {
    await checked;
    return run;
  } catch (thrown) {
    vm.run = null;
    await run.kill();
    throw thrown;
  }
}
