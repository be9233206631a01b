import type { Facts } from "./cel/evaluate.ts";
import { createMeter } from "./cel/meter.ts";
import { HIDDEN, NoValue, type Outcome } from "./cel/outcome.ts";
import { type Decision, decideUnindexed } from "./decide.ts";
import { fieldsMadeWith, type SecurityEvent } from "./event/event.ts";
import { canBeCut, type FieldPath, fieldRow } from "./event/field-table.ts";
import { hasAllNeeded } from "./replay.ts";
import { DECISIONS, isDeciding, type Rule } from "./rule.ts";
import type { PolicySnapshot } from "./snapshot.ts";

/**
 * The id of a rule because of which `decision` might have been stricter, or the act changed, had fields been seen that
 * nobody could collect of this act: the whole content, where only a window of a file passes. Undefined where no content
 * would have made a difference, but for rules no stricter than the decision that some content would make fault.
 */
export function ruleThatHangs(
  snapshot: PolicySnapshot,
  event: SecurityEvent,
  decision: Decision,
  unseen: readonly FieldPath[],
): string | undefined {
  const hidden = unseen.flatMap((path) => [path, ...fieldsMadeWith(path), ...flagOf(path)]);
  const facts: Facts = new Map<string, Outcome>([
    ...event.facts,
    ...hidden.filter((path) => isOfEvent(event, path)).map((path) => [path, HIDDEN] as const),
  ]);
  // By the rules that match whatever was not seen.
  const sure = decideUnindexed(snapshot, { type: event.type, facts });
  const meter = createMeter();
  const graver = snapshot.rules.find(
    (rule) =>
      isGraver(rule, sure) && hasAllNeeded(rule, facts) && mayMatch(rule.condition.evaluate(facts, meter)),
  );
  if (graver !== undefined) return graver.id;
  if (strictness(sure) <= strictness(decision)) return undefined;
  // What decided did so only because it did not see.
  return sure.explanation.matched.some(({ rule_id }) => rule_id === sure.rule_id)
    ? sure.rule_id
    : decision.rule_id;
}

const strictness = ({ action }: Decision) => DECISIONS.indexOf(action);

function isGraver(rule: Rule, sure: Decision): boolean {
  if (!isDeciding(rule.action)) return sure.action !== "block" && !sure.changes.includes(rule.id);
  const winner = sure.explanation.matched.find(({ rule_id }) => rule_id === sure.rule_id);
  const last = winner?.priority ?? Number.POSITIVE_INFINITY;
  return rule.priority <= last && DECISIONS.indexOf(rule.action) > strictness(sure);
}

/** For some content: it matches, or cannot be computed, which blocks. */
function mayMatch(outcome: Outcome): boolean {
  if (outcome instanceof NoValue) return outcome === HIDDEN || outcome.fault !== undefined;
  return outcome === true;
}

function flagOf(path: FieldPath): string[] {
  const row = fieldRow(path);
  return row !== undefined && canBeCut(row) ? [`${path.slice(0, path.indexOf("."))}.truncated`] : [];
}

/** `file.content` stands for the content of any act: the one of another act is not hidden but absent. */
function isOfEvent({ facts }: SecurityEvent, path: string): boolean {
  return facts.has(path.split(".").slice(0, -1).join("."));
}
