import type { Decision, Why } from "./decide.ts";

const WHY: Readonly<Record<Why, string>> = {
  only_one: "it is the only rule that decides",
  lower_priority: "its priority comes first",
  stricter: "it is the strictest of its priority",
  earlier_id: "its id comes first among equals",
  no_rule: "no rule decides, so the posture does",
};

/** A decision in lines that a person, or a model that was refused, can act on. */
export function renderDecision(decision: Decision): string {
  const { matched, why, allowed } = decision.explanation;
  const lines = [`${decision.action} by ${decision.rule_id}: ${decision.reason}`, `  because ${WHY[why]}`];
  for (const rule of matched) {
    const detection = rule.detection === "none" ? "" : `, detection ${rule.detection}`;
    const fault = rule.fault === undefined ? "" : `, not evaluated: ${rule.fault}`;
    lines.push(`  matched ${rule.rule_id}: ${rule.action} at ${rule.priority}${detection}${fault}`);
  }
  for (const rule of allowed) lines.push(`  ${rule.rule_id} would allow: ${rule.match.replace(/\s+/g, " ")}`);
  return lines.join("\n");
}
