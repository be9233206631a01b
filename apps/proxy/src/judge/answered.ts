import type { Decision, FieldPath, PolicySnapshot } from "@capsem/policy";

/** What an act shows of itself only when it is done. */
const RESULT_FIELDS = [
  "mcp.response.content",
  "mcp.response.structured",
  "mcp.response.is_error",
  "mcp.truncated",
  "label.confidentiality",
  "label.integrity",
  "label.sources",
] as const satisfies readonly FieldPath[];
/** Names above them, of which a rule may ask whether they are there. */
const RESULT_NAMES: readonly string[] = [...RESULT_FIELDS, "mcp.response", "label"];

/**
 * Whoever let the act pass has answered a rule that asks about nothing but the act: a person whom it asked, or a rule
 * that comes before it and let the act pass, as an approval for always does.
 */
export function isAnswered(snapshot: PolicySnapshot, decision: Decision, of: Decision): boolean {
  if (decision.action !== "ask") return false;
  const hasAsked = of.action === "ask" && decision.rule_id === of.rule_id;
  const isPreceded =
    of.action === "allow" && of.explanation.matched.some(({ rule_id }) => rule_id === decision.rule_id);
  if (!hasAsked && !isPreceded) return false;
  const rule = snapshot.rules.find(({ id }) => id === decision.rule_id);
  if (rule === undefined) return false;
  const { values, presence } = rule.reads;
  return !RESULT_NAMES.some((path) => values.has(path) || presence.has(path));
}
