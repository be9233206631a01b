import { childrenOf, type Expression } from "./cel/expression.ts";
import type { Decision } from "./decide.ts";
import type { SecurityEvent } from "./event/event.ts";
import type { FieldPath } from "./event/field-table.ts";
import { RULE_SOURCES, type Rule } from "./rule.ts";
import { typesOf } from "./rule-index.ts";
import type { PolicySnapshot } from "./snapshot.ts";

export const LABEL_PATHS = [
  "label.confidentiality",
  "label.integrity",
  "label.sources",
] as const satisfies readonly FieldPath[];
export type LabelPath = (typeof LABEL_PATHS)[number];

/**
 * The parts of the label that an approval is bound to: those that a rule which asked looks at, and those that decide
 * between it and its peers. The label is of all that an agent has seen, not of this act, so it grows with every answer:
 * an approval bound to more of it would not even serve the next call.
 */
export function boundLabels(
  snapshot: PolicySnapshot,
  event: SecurityEvent,
  { rule_id, explanation: { matched } }: Decision,
): readonly LabelPath[] {
  // A rule for "always" goes before the posture, and so before what is built in.
  const priority = matched.find((rule) => rule.rule_id === rule_id)?.priority ?? RULE_SOURCES.builtin.most;
  const asked = new Set(matched.flatMap((rule) => (rule.action === "ask" ? [rule.rule_id] : [])));
  const candidates = new Set(snapshot.index.candidates(event.type, event.facts));
  // One that is found by its label would be found with another one.
  const isByLabel = (rule: Rule) =>
    rule.guard.key?.path.startsWith("label.") === true && typesOf(rule).includes(event.type);
  const isPeer = (rule: Rule) =>
    rule.priority === priority &&
    (rule.action === "ask" || rule.action === "block") &&
    (candidates.has(rule) || isByLabel(rule));
  const read = new Set<string>();
  for (const rule of snapshot.rules) {
    if (asked.has(rule.id) || isPeer(rule)) {
      for (const path of labelsIn(rule.condition.expression)) read.add(path);
    }
  }
  return LABEL_PATHS.filter((path) => read.has(path));
}

export function isLabelPath(path: string): path is LabelPath {
  return (LABEL_PATHS as readonly string[]).includes(path);
}

function labelsIn(expression: Expression): readonly string[] {
  if (expression.kind === "field" || expression.kind === "has") {
    return isLabelPath(expression.path) ? [expression.path] : [];
  }
  const level = expression.kind === "call" && expression.name === "tainted" ? expression.args[1] : undefined;
  // It is given both, and each level is of one.
  if (level?.kind === "literal") {
    const isSecrecy = level.value === "internal" || level.value === "secret";
    return [isSecrecy ? "label.confidentiality" : "label.integrity"];
  }
  return childrenOf(expression).flatMap(labelsIn);
}
