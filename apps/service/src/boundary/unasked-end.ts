import type { VmRecord } from "../vm/record.ts";
import type { Boundary } from "./parts.ts";
import { lifecycleDraft, vmFactsOf } from "./vm-draft.ts";

/** Of a VM: `why` is one of its reasons, or a word such as `client_left`. Never throws. */
export type UnaskedEnd = (
  vm: { readonly record: Pick<VmRecord, "id" | "name" | "image"> },
  action: "stop" | "delete",
  why: string,
  outcome: "done" | "failed",
) => void;

/** What nobody asked for is not refused, but recorded, and rules may detect it. */
export function recordUnasked(boundary: Pick<Boundary, "note">): UnaskedEnd {
  return ({ record }, action, why, outcome) =>
    boundary.note(lifecycleDraft(vmFactsOf(record), action, "service", why), outcome);
}

/** Told when it is over, of how it went. */
export async function whileUnasked(
  told: UnaskedEnd,
  [vm, action, why]: readonly [vm: Parameters<UnaskedEnd>[0], action: "stop" | "delete", why: string],
  work: () => Promise<void>,
): Promise<void> {
  try {
    await work();
  } catch (thrown) {
    told(vm, action, why, "failed");
    throw thrown;
  }
  told(vm, action, why, "done");
}
