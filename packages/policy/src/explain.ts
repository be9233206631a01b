import type { Decision, MatchedRule, Why } from "./decide.ts";

const WHY: Readonly<Record<Why, string>> = {
  only_one: "the only rule that decides",
  lower_priority: "its priority comes first",
  stricter: "the strictest of its priority",
  earlier_id: "its id comes first among equals",
  no_rule: "no rule decides, so the posture does",
};

/** What fits beside an id; the whole condition is in the rule's file. */
const MATCH_CHARS_MAX = 160;

/** Line breaks of a condition are spaces here, and nothing in it moves the cursor or turns the text around. */
const SPACES = /\s+/gu;
const NOT_SHOWN = /[\p{Cc}\p{Cf}\p{Surrogate}]/gu;

/** A decision in lines that a person, or a model that was refused, can act on: what, why, and what else matched. */
export function renderDecision(decision: Decision): string {
  const { action, rule_id, reason, detection, explanation } = decision;
  const level = detection === "none" ? "" : ` (detection: ${detection})`;
  const hints = explanation.allowed.map((rule) => `${rule.rule_id}: ${oneLine(rule.match)}`);
  return [
    `${action}: ${reason}${level}`,
    ...column("decided by", [`${rule_id} (${WHY[explanation.why]})`]),
    ...column(
      "matched",
      explanation.matched.map((rule) => matchedText(rule)),
    ),
    ...column("would allow", hints),
  ].join("\n");
}

/** A heading, and its lines below each other to the right of it. */
function column(heading: string, lines: readonly string[]): string[] {
  return lines.map((line, index) => `  ${(index === 0 ? heading : "").padEnd(11)}  ${line}`);
}

function matchedText({ rule_id, action, priority, detection, fault }: MatchedRule): string {
  const what = fault === undefined ? action : `block, because it cannot be evaluated: ${fault}`;
  const level = detection === "none" ? "" : `, detection ${detection}`;
  return `${rule_id} (priority ${priority}${level}): ${what}`;
}

function oneLine(match: string): string {
  const line = match.replace(SPACES, " ").replace(NOT_SHOWN, "?").trim();
  return line.length <= MATCH_CHARS_MAX ? line : `${line.slice(0, MATCH_CHARS_MAX)}…`;
}
