import { REPLAY_LISTED_MAX, type ReplayResult, type SecurityEntry } from "@capsem/api";
import { type PolicySnapshot, replay } from "@capsem/policy";
import { POLICY_FILE_LIMITS } from "../limits.ts";
import { nextTurn } from "./next-turn.ts";

/** Every decision of a ledger since a moment (null: all of them), the newest first. Throws Failure "ledger_not_found". */
export type DecisionsOf = (
  ledger: string,
  asked: { readonly sinceMs: number | null; readonly signal: AbortSignal },
) => AsyncIterable<SecurityEntry>;

/** Judges again what was decided, with other rules. Nothing is done, and nothing is kept but what is answered. */
export async function replayPast(
  entries: AsyncIterable<SecurityEntry>,
  snapshot: PolicySnapshot,
  signal: AbortSignal,
): Promise<ReplayResult> {
  const result = { events: 0, same: 0, truncated: false };
  const different: ReplayResult["different"] = [];
  const undecidable: ReplayResult["undecidable"] = [];
  const list = <T>(kept: T[], item: T) => {
    if (kept.length < REPLAY_LISTED_MAX) kept.push(item);
    else result.truncated = true;
  };
  for await (const entry of entries) {
    result.events += 1;
    await othersFirst(signal);
    const was = { action: entry.action, rule_id: entry.rule_id };
    const again = replay(entry.event, was, snapshot);
    const { time, event_id, type } = entry;
    const about = { time, event_id, type, title: titleOf(entry) };
    if (again.kind === "same") result.same += 1;
    else if (again.kind === "undecidable") list(undecidable, { ...about, why: again.why });
    else {
      const { action, rule_id, reason } = again.now;
      list(different, { ...about, was, now: { action, rule_id, reason } });
    }
  }
  return { ...result, different, undecidable };
}

/** Rules that look into everything may take 0.2 s for one event: nobody waits for more than one. */
async function othersFirst(signal: AbortSignal): Promise<void> {
  await nextTurn();
  signal.throwIfAborted();
}

/** Fields that say what an act is about, the most telling first. */
const TELLING = [
  "process.command",
  "file.import.path",
  "file.export.path",
  "file.create.path",
  "file.write.path",
  "file.delete.path",
  "file.read.path",
  "vm.lifecycle.action",
  "settings.key",
  "http.host",
  "dns.qname",
  "mcp.tool_call.name",
  "process.exec.id",
] as const;

function titleOf({ type, event }: SecurityEntry): string {
  const fields = typeof event.fields === "object" && event.fields !== null ? event.fields : {};
  const told = new Map<string, unknown>(Object.entries(fields));
  const path = TELLING.find((name) => typeof told.get(name) === "string");
  const text = path === undefined ? type : `${type} ${String(told.get(path))}`;
  const { titleCharactersMax: most } = POLICY_FILE_LIMITS;
  return text.length <= most ? text : `${text.slice(0, most)}…`;
}
