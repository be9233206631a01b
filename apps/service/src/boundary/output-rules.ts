import { type FieldPath, type PolicySnapshot, type Rule, typesOf } from "@capsem/policy";

/** What a job's event has only when the job is over. */
export const RESULT_FIELDS = [
  "process.exec.exit_code",
  "process.exec.stdout",
  "process.exec.stderr",
] as const satisfies readonly FieldPath[];

const known = new WeakMap<PolicySnapshot, boolean>();

/** Whether what a job writes may turn out to be withheld: then none of it goes out before it was judged. */
export function isOutputHeld(snapshot: PolicySnapshot): boolean {
  const before = known.get(snapshot);
  if (before !== undefined) return before;
  const isHeld =
    snapshot.reads("process.exec.stdout") ||
    snapshot.reads("process.exec.stderr") ||
    snapshot.posture.get("process.exec_complete") !== "allow" ||
    snapshot.rules.some(decidesResults);
  known.set(snapshot, isHeld);
  return isHeld;
}

/** It refuses results, and not for what the command's start has shown already. */
function decidesResults(rule: Rule): boolean {
  if (rule.action !== "block" && rule.action !== "ask") return false;
  const types = typesOf(rule);
  return types.includes("process.exec_complete") && (!types.includes("process.exec") || readsExitCode(rule));
}

function readsExitCode({ reads }: Rule): boolean {
  return reads.values.has("process.exec.exit_code") || reads.presence.has("process.exec.exit_code");
}
