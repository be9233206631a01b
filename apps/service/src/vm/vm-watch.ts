import type { VmState } from "@capsem/api";
import { messageOf } from "@capsem/base";
import type { EventHub } from "../events/event-hub.ts";
import type { FindingBook } from "../trouble/finding-book.ts";
import type { Vm } from "./vm.ts";

/** Told by the lifecycle, at the moment of a change and in order; never throws. */
export interface VmWatch {
  /** State, health or name is another, or the VM is new. */
  changed(vm: Vm): void;
  /** It runs for the first time. */
  created(vm: Vm): void;
  /** It could not start, or died while nobody asked for it. */
  failed(vm: Vm, why: string, detail: string): void;
  gone(vm: Vm, lastState: VmState): void;
}

/** Counts since the service started. */
export interface VmCounts {
  created: number;
  deleted: number;
  failed: number;
  jobsStarted: number;
}

export interface VmWatchParts {
  readonly events: Pick<EventHub, "changed" | "gone">;
  readonly findings: Pick<FindingBook, "add">;
  readonly counts: VmCounts;
}

export function createVmWatch({ events, findings, counts }: VmWatchParts): VmWatch {
  return {
    changed: (vm) => events.changed(vm),
    created() {
      counts.created += 1;
    },
    failed(vm, why, detail) {
      counts.failed += 1;
      findings.add("vm_failed", vm.id, `VM failed: ${why}`, detail);
    },
    gone(vm, lastState) {
      // One that never ran was not created, so it is not deleted either.
      if (vm.record.started_at !== null) counts.deleted += 1;
      events.gone(vm, lastState);
    },
  };
}

export function whyOf(thrown: unknown): { why: string; detail: string } {
  const why = thrown instanceof Error && "reason" in thrown ? thrown.reason : null;
  const detail = thrown instanceof Error && "detail" in thrown ? thrown.detail : undefined;
  const text = typeof detail === "string" && detail !== "" ? detail : messageOf(thrown);
  return { why: typeof why === "string" ? why : kindOf(thrown), detail: text };
}

function kindOf(thrown: unknown): string {
  return thrown instanceof Error && "kind" in thrown ? String(thrown.kind) : "internal";
}
