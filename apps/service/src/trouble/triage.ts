import type { Finding, Panic } from "@capsem/api";
import { VM_ID_PATTERN } from "@capsem/base";
import type { HomeLayout } from "../home/layout.ts";
import { LOG_LIMITS, TROUBLE_LIMITS } from "../limits.ts";
import type { FindingBook } from "./finding-book.ts";
import { listPanics } from "./panic-list.ts";

export interface TriageRequest {
  readonly sinceMs: number | null;
  readonly vmId: string | null;
  readonly limit: number;
  readonly signal?: AbortSignal;
}

/** The worst first. */
const RANKS: Readonly<Record<Finding["kind"], number>> = {
  panic: 0,
  vm_failed: 1,
  server_error: 2,
  lane_reset: 3,
  slow: 4,
};

/** Panics of the disk, which outlive the service, and what this service saw since its start. */
export async function triage(
  layout: Pick<HomeLayout, "panics" | "logs" | "run">,
  book: FindingBook,
  { sinceMs, vmId, limit, signal }: TriageRequest,
): Promise<{ findings: Finding[]; truncated: boolean }> {
  const { panics } = await listPanics(layout, { sinceMs, limit: LOG_LIMITS.panicsKept, signal });
  const concerned = panics.filter((each) => vmId === null || vmOf(each) === vmId);
  const all = [...groupsOf(concerned), ...book.shown({ sinceMs, vmId })].sort(
    (left, right) =>
      RANKS[left.kind] - RANKS[right.kind] ||
      right.count - left.count ||
      Date.parse(right.time) - Date.parse(left.time),
  );
  return { findings: all.slice(0, limit), truncated: all.length > limit };
}

/** Alike panics are one finding; they come the newest first. */
function groupsOf(panics: readonly Panic[]): Finding[] {
  const groups = new Map<string, Finding>();
  for (const each of panics) {
    const vmId = vmOf(each);
    const [line = ""] = each.message.split("\n");
    const key = `${each.process} ${line} ${vmId === null ? each.location : ""}`;
    const known = groups.get(key);
    if (known === undefined) {
      const title = `${each.process}: ${line}`.slice(0, TROUBLE_LIMITS.titleCharactersMax);
      groups.set(key, {
        kind: "panic",
        time: each.time,
        vm_id: vmId,
        title,
        detail: each.location ?? "",
        count: 1,
      });
    } else {
      const isOneVm = known.vm_id === vmId;
      groups.set(key, { ...known, vm_id: isOneVm ? vmId : null, count: known.count + 1 });
    }
  }
  return [...groups.values()];
}

/** An owner that ended without an error of its own names its VM as the place. */
function vmOf({ location }: Panic): string | null {
  const id = /^VM (\S+)$/.exec(location ?? "")?.[1];
  return id !== undefined && VM_ID_PATTERN.test(id) ? id : null;
}
