import type { Facts } from "./cel/evaluate.ts";
import { createMeter } from "./cel/meter.ts";
import { HIDDEN, type Outcome } from "./cel/outcome.ts";
import { type Decision, decide, decideUnindexed } from "./decide.ts";
import type { SecurityEvent } from "./event/event.ts";
import { canBeCut, type FieldPath, fieldRow } from "./event/field-table.ts";
import { hasAllNeeded, isOpen } from "./replay.ts";
import { isDeciding } from "./rule.ts";
import type { PolicySnapshot } from "./snapshot.ts";

/**
 * The block that meets every act like `event`, whatever its `unseen` fields hold: what is blocked so is not even shown.
 * Undefined where some value of them may let it pass, or have a person asked.
 */
export function standingBlock(
  snapshot: PolicySnapshot,
  event: SecurityEvent,
  unseen: readonly FieldPath[],
): Decision | undefined {
  // Without them is one of the acts.
  if (decide(snapshot, event).action !== "block") return undefined;
  const hidden = unseen.flatMap((path) => [path, ...flagOf(path)]);
  const facts: Facts = new Map<string, Outcome>([
    ...event.facts,
    ...hidden.map((path) => [path, HIDDEN] as const),
  ]);
  const sure = decideUnindexed(snapshot, { type: event.type, facts });
  if (sure.action !== "block") return undefined;
  const winner = sure.explanation.matched.find(({ rule_id }) => rule_id === sure.rule_id);
  const last = winner?.priority ?? Number.POSITIVE_INFINITY;
  const meter = createMeter();
  const mayPass = snapshot.rules.some(
    (rule) =>
      rule.priority < last &&
      isDeciding(rule.action) &&
      rule.action !== "block" &&
      hasAllNeeded(rule, facts) &&
      isOpen(rule.condition.evaluate(facts, meter)),
  );
  return mayPass ? undefined : sure;
}

function flagOf(path: FieldPath): string[] {
  const row = fieldRow(path);
  return row !== undefined && canBeCut(row) ? [`${path.slice(0, path.indexOf("."))}.truncated`] : [];
}
