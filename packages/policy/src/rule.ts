import type { Condition } from "./cel/condition.ts";
import { type Guard, guardOf } from "./cel/guard.ts";
import { type Reads, readsOf } from "./cel/reads.ts";
import { ARRIVES, type Arrival } from "./event/arrivals.ts";
import type { Position } from "./fault.ts";

/** Who wrote a rule. Each has its table in a file and its range of priorities; lower comes first. */
export const RULE_SOURCES = {
  corp: { table: ["corp", "rules"], least: -1000, most: -10, usual: -10 },
  user: { table: ["profiles", "rules"], least: 10, most: 1000, usual: 10 },
  builtin: { table: ["default"], least: 1001, most: 1001, usual: 1001 },
} as const;
export type RuleSource = keyof typeof RULE_SOURCES;

/** An approval for "always" is a rule just before the one that asked: a rule of the user's that asks leaves room. */
export const ASK_PRIORITY = 20;

/** Stricter to the right. */
export const DECISIONS = ["allow", "ask", "block"] as const;
export type DecisionAction = (typeof DECISIONS)[number];

/** These do not decide; the decision carries the rules that matched, and the caller runs them. */
export const CHANGES = ["preprocess", "rewrite", "postprocess"] as const;
export type RuleAction = DecisionAction | (typeof CHANGES)[number];

/** Changes that nobody carries out yet, with what brings them: a rule of one compiles, matches, and changes nothing. */
export const CHANGES_TO_COME: ReadonlyMap<RuleAction, Arrival> = new Map([
  ["preprocess", ARRIVES.network],
  ["rewrite", ARRIVES.network],
  ["postprocess", ARRIVES.network],
]);

/** Other words for `rewrite` that a file may use. */
export const ACTION_ALIASES: ReadonlyMap<string, RuleAction> = new Map([
  ["redact", "rewrite"],
  ["mutate", "rewrite"],
  ["neutralize", "rewrite"],
]);

/** Graver to the right. */
export const DETECTION_LEVELS = ["none", "informational", "low", "medium", "high", "critical"] as const;
export type DetectionLevel = (typeof DETECTION_LEVELS)[number];

export interface Rule {
  /** `corp.rules.NAME`, `profiles.rules.NAME` or `default.NAME`. */
  readonly id: string;
  readonly name: string;
  readonly source: RuleSource;
  readonly action: RuleAction;
  readonly condition: Condition;
  readonly guard: Guard;
  readonly reads: Reads;
  readonly detection: DetectionLevel;
  readonly priority: number;
  readonly reason: string;
  readonly isEnabled: boolean;
  /** Absent for a rule that came by a route and not from a file. */
  readonly at: Position | undefined;
}

export function rule(fields: Omit<Rule, "id" | "guard" | "reads">): Rule {
  return Object.freeze({
    ...fields,
    id: ruleId(fields.source, fields.name),
    guard: guardOf(fields.condition.expression),
    reads: readsOf(fields.condition.expression),
  });
}

export function ruleId(source: RuleSource, name: string): string {
  return [...RULE_SOURCES[source].table, name].join(".");
}

export function isDeciding(action: RuleAction): action is DecisionAction {
  return (DECISIONS as readonly string[]).includes(action);
}

/** The stricter of two decisions: what a later stage may only raise. */
export function stricter(a: DecisionAction, b: DecisionAction): DecisionAction {
  return DECISIONS.indexOf(a) >= DECISIONS.indexOf(b) ? a : b;
}

/** The order of judgement: priority, then id. */
export function inOrder(a: Rule, b: Rule): number {
  return a.priority - b.priority || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
}
