import type { VmInfo } from "@capsem/api";
import { asyncDispose } from "./dispose.ts";
import { CapsemError } from "./error.ts";
import type { Transport } from "./transport.ts";
import { createVm, type Vm } from "./vm.ts";

/** A VM that this program made. `await using` deletes it at the end of the block, a plain `const` does not. */
export interface CreatedVm extends Vm, AsyncDisposable {
  /** What it was when it had started. */
  readonly created: VmInfo;
}

export function createdVm(transport: Transport, created: VmInfo): CreatedVm {
  const vm = createVm(transport, created.id);
  return {
    ...vm,
    created,
    [asyncDispose]: async () => {
      try {
        await vm.delete();
      } catch (thrown) {
        // Somebody else deleted it, or its command ended it.
        if (!(thrown instanceof CapsemError) || thrown.kind !== "vm_not_found") throw thrown;
      }
    },
  };
}
