import { type Decision, type PolicySnapshot, type Rule, type SecurityEvent, typesOf } from "@capsem/policy";

type TreeType = "file.import" | "file.export";

/**
 * The first rule that judges files of a tree one by one, so that what was decided of the tree alone says nothing of
 * them. Null: the decision holds for every file in it.
 */
export function ruleOfFiles(
  snapshot: PolicySnapshot,
  event: SecurityEvent,
  decision: Decision,
): { readonly id: string } | null {
  const type = event.type as TreeType;
  const winner = snapshot.rules.find(({ id }) => id === decision.rule_id);
  const isSettled = (rule: Rule) => {
    if (rule === winner) return true;
    const hasMatched = decision.explanation.matched.some(({ rule_id }) => rule_id === rule.id);
    if (winner === undefined || rule.priority <= winner.priority)
      return !hasMatched && !readsFile(rule, type);
    // What decides by nothing of a file decides each file as it decided the tree.
    if (!readsFile(winner, type)) return true;
    return hasMatched ? namesExactly(winner, event, type) : !readsFile(rule, type);
  };
  return snapshot.rules.find((rule) => judges(rule, type) && !isSettled(rule)) ?? null;
}

function judges(rule: Rule, type: TreeType): boolean {
  return (rule.action === "block" || rule.action === "ask") && typesOf(rule).includes(type);
}

function readsFile({ reads }: Rule, type: TreeType): boolean {
  const absent = [`${type}.mime_type`, `${type}.size`, `${type}.content`, "file.content"];
  const own = [`${type}.path`, `${type}.name`, `${type}.ext`, "file.truncated", ...absent];
  return own.some((path) => reads.values.has(path)) || absent.some((path) => reads.presence.has(path));
}

/** As an approval for always does: whoever named this very path has meant the tree. */
function namesExactly({ guard }: Rule, event: SecurityEvent, type: TreeType): boolean {
  const path = event.facts.get(`${type}.path`);
  return guard.key?.path === `${type}.path` && typeof path === "string" && guard.key.equal.has(path);
}
