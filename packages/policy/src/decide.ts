import type { Facts } from "./cel/evaluate.ts";
import { createMeter, SPENT } from "./cel/meter.ts";
import { NoValue } from "./cel/outcome.ts";
import type { SecurityEvent } from "./event/event.ts";
import type { EventType } from "./event/event-table.ts";
import {
  DECISIONS,
  DETECTION_LEVELS,
  type DecisionAction,
  type DetectionLevel,
  isDeciding,
  type Rule,
  type RuleAction,
} from "./rule.ts";
import type { Hint } from "./rule-index.ts";
import type { PolicySnapshot } from "./snapshot.ts";

/** Why the winner won over the other deciding rules that matched. */
export type Why = "only_one" | "lower_priority" | "stricter" | "earlier_id" | "no_rule";

export interface MatchedRule {
  readonly rule_id: string;
  readonly action: RuleAction;
  readonly priority: number;
  readonly detection: DetectionLevel;
  /** What could not be computed; such a rule blocks, whatever its action is. */
  readonly fault: string | undefined;
}

export interface Explanation {
  /** Every rule that matched, in the order of judgement. */
  readonly matched: readonly MatchedRule[];
  readonly why: Why;
  /** For who was not allowed: rules of this type of event that would have allowed it first, and what they match. */
  readonly allowed: readonly Hint[];
}

/** Plain data: it is stored as it is. */
export interface Decision {
  readonly action: DecisionAction;
  /** The rule that decided; `posture.PRESET` where none did. */
  readonly rule_id: string;
  readonly reason: string;
  /** The gravest level of all rules that matched. */
  readonly detection: DetectionLevel;
  /** Ids of the matched rules that change instead of deciding, in order. */
  readonly changes: readonly string[];
  readonly explanation: Explanation;
}

/** What is judged of an event. In a replay some facts are hidden; a rule that hangs on one does not match. */
export interface Judged {
  readonly type: EventType;
  readonly facts: Facts;
}

/** A rule that matched, or that could not be evaluated. */
interface Match {
  readonly rule: Rule;
  readonly fault: string | undefined;
}

/**
 * The one judge: the same for a request, its dry run and its replay. It never throws.
 * A rule whose condition is absent in this event does not match; one that cannot be computed blocks. The work of all
 * rules together is bounded: the rule in which it runs out blocks, those after it are not asked.
 */
export function decide(snapshot: PolicySnapshot, event: SecurityEvent): Decision {
  return judge(snapshot, event, snapshot.index.candidates(event.type, event.facts));
}

/** As `decide`, with every rule evaluated: for replays, where the index does not see what is hidden, and for tests. */
export function decideUnindexed(snapshot: PolicySnapshot, event: Judged): Decision {
  return judge(snapshot, event, snapshot.rules);
}

function judge(snapshot: PolicySnapshot, event: Judged, candidates: readonly Rule[]): Decision {
  const matches: Match[] = [];
  const meter = createMeter();
  for (const rule of candidates) {
    const outcome = rule.condition.evaluate(event.facts, meter);
    if (outcome === true) matches.push({ rule, fault: undefined });
    else if (outcome instanceof NoValue && outcome.fault !== undefined) {
      matches.push({ rule, fault: outcome.fault });
    }
    if (outcome === SPENT) break;
  }
  const deciding = matches.filter((match) => actionOf(match) !== undefined);
  const winner = winnerOf(deciding);
  const action = winner === undefined ? posture(snapshot, event) : (actionOf(winner) ?? "block");
  return {
    action,
    rule_id: winner?.rule.id ?? `posture.${snapshot.preset}`,
    reason: reasonOf(snapshot, event, winner),
    detection: gravest(matches),
    changes: matches.filter(isChange).map(({ rule }) => rule.id),
    explanation: {
      matched: matches.map(matchedRule),
      why: whyOf(winner, deciding),
      allowed:
        action === "allow"
          ? []
          : snapshot.index.hints(event.type, winner?.rule.priority ?? Number.POSITIVE_INFINITY),
    },
  };
}

function posture(snapshot: PolicySnapshot, event: Judged): DecisionAction {
  return snapshot.posture.get(event.type) ?? "block";
}

/** What a match decides: a rule that cannot be computed blocks; one that changes decides nothing. */
function actionOf({ rule, fault }: Match): DecisionAction | undefined {
  if (fault !== undefined) return "block";
  return isDeciding(rule.action) ? rule.action : undefined;
}

function isChange({ rule, fault }: Match): boolean {
  return fault === undefined && !isDeciding(rule.action);
}

/** The first by priority; within one priority the strictest; among those the first by id. */
function winnerOf(deciding: readonly Match[]): Match | undefined {
  let winner: Match | undefined;
  for (const match of deciding) {
    if (winner === undefined) winner = match;
    else if (match.rule.priority !== winner.rule.priority) break;
    else if (strictness(match) > strictness(winner)) winner = match;
  }
  return winner;
}

function strictness(match: Match): number {
  return DECISIONS.indexOf(actionOf(match) ?? "allow");
}

function whyOf(winner: Match | undefined, deciding: readonly Match[]): Why {
  if (winner === undefined) return "no_rule";
  const others = deciding.filter((match) => match !== winner);
  if (others.length === 0) return "only_one";
  const peers = others.filter((match) => match.rule.priority === winner.rule.priority);
  if (peers.length === 0) return "lower_priority";
  return peers.some((match) => strictness(match) === strictness(winner)) ? "earlier_id" : "stricter";
}

function reasonOf(snapshot: PolicySnapshot, event: Judged, winner: Match | undefined): string {
  if (winner === undefined) return `no rule matches; the posture "${snapshot.preset}" for ${event.type}`;
  const { rule, fault } = winner;
  if (fault !== undefined) return `rule "${rule.id}" cannot be evaluated: ${fault}`;
  return rule.reason === "" ? nameOf(rule.id) : rule.reason;
}

/** What its rule says; empty for a rule without a reason, of which a decision says the name in its place. */
export function reasonGiven({ rule_id, reason }: Pick<Decision, "rule_id" | "reason">): string {
  return reason === nameOf(rule_id) ? "" : reason;
}

function nameOf(ruleId: string): string {
  return `rule "${ruleId}"`;
}

function gravest(matches: readonly Match[]): DetectionLevel {
  let level = 0;
  for (const { rule } of matches) level = Math.max(level, DETECTION_LEVELS.indexOf(rule.detection));
  return DETECTION_LEVELS[level] ?? "none";
}

function matchedRule({ rule, fault }: Match): MatchedRule {
  return {
    rule_id: rule.id,
    action: rule.action,
    priority: rule.priority,
    detection: rule.detection,
    fault,
  };
}
