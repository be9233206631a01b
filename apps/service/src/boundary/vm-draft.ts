import type { VmRecord } from "../vm/record.ts";
import type { ActDraft, VmFacts } from "./parts.ts";

export type LifecycleAction =
  | "create"
  | "start"
  | "stop"
  | "restart"
  | "rename"
  | "persist"
  | "delete"
  | "purge";

export function vmFactsOf({ id, name, image }: Pick<VmRecord, "id" | "name" | "image">): VmFacts {
  // The stand-in of a record that cannot be read knows no image.
  return { id, name, image: image === "" ? null : image };
}

/** What ends a VM frees room, so a ledger without any does not keep it. */
const NEEDS_NO_ROOM: ReadonlySet<LifecycleAction> = new Set(["stop", "delete", "purge"]);

/** What is to become of a VM. `requester` is who asked, as rows have it. */
export function lifecycleDraft(
  vm: VmFacts,
  action: LifecycleAction,
  requester: string,
  detail: string | null = null,
): ActDraft {
  const name = nameFor(vm, action, detail);
  return {
    type: "vm.lifecycle",
    vm,
    fields: {
      "vm.lifecycle.action": action,
      "vm.lifecycle.requester": requester,
      ...(name === null ? {} : { "vm.lifecycle.name": name }),
    },
    title: `${action} VM ${vm.name === null ? vm.id : `"${vm.name}" (${vm.id})`}${detail === null ? "" : `: ${detail}`}`,
    row: { table: "lifecycle_events", facts: { action, vm_name: vm.name, image: vm.image, detail } },
    ...(NEEDS_NO_ROOM.has(action) ? { needsNoRoom: true } : {}),
  };
}

/** The name that the VM will have: a rule about it holds for whoever would take it, and not for its bearer alone. */
function nameFor(vm: VmFacts, action: LifecycleAction, detail: string | null): string | null {
  if (action === "create") return vm.name;
  return action === "rename" || action === "persist" ? detail : null;
}
