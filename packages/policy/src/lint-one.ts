import { canBeAllowed } from "./allow-rule.ts";
import type { FindingKind, LintFinding } from "./lint-finding.ts";
import { suspectText } from "./lint-suspect.ts";
import { awaited, typesSeen } from "./lint-unobserved.ts";
import { ASK_PRIORITY, CHANGES_TO_COME, RULE_SOURCES, type Rule } from "./rule.ts";

/** What there is to say of one rule that could match, whatever the others are. Built-in rules wait for what comes. */
export function findingsOf(rule: Rule): readonly LintFinding[] {
  if (rule.source === "builtin") return [];
  const types = typesSeen(rule);
  const found: (readonly [FindingKind, string])[] = [];
  const arrival = CHANGES_TO_COME.get(rule.action);
  if (types.size === 0) found.push(["unobserved", `matches nothing in this version: ${awaited(rule)}`]);
  else if (arrival !== undefined) {
    found.push(["inert", `changes nothing in this version: ${rule.action} comes ${arrival}`]);
  }
  const suspect = suspectText(rule.condition);
  if (suspect !== undefined) found.push(["suspect", suspect]);
  if (isFirst(rule) && [...types].some(canBeAllowed)) found.push(["no_always", NO_ALWAYS]);
  return found.map(([kind, text]) => finding(kind, rule, text));
}

const { least } = RULE_SOURCES.user;
const NO_ALWAYS =
  `asks at priority ${least}, before which there is no room for the rule that an approval for always writes; ` +
  `give it priority = ${ASK_PRIORITY}`;

/** It asks, and a rule that an approval writes finds no place before it. */
function isFirst({ source, action, priority }: Rule): boolean {
  return source === "user" && action === "ask" && priority === least;
}

export function finding(kind: FindingKind, rule: Rule, text: string): LintFinding {
  return { kind, rule_id: rule.id, other_id: undefined, message: `"${rule.id}" ${text}`, at: rule.at };
}
