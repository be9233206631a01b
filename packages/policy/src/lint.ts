import { childrenOf, type Expression } from "./cel/expression.ts";
import { guardOf, type Key } from "./cel/guard.ts";
import { Implications } from "./implication.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { Candidates } from "./lint-candidates.ts";
import type { LintFinding } from "./lint-finding.ts";
import { finding, findingsOf } from "./lint-one.ts";
import { onceEach } from "./once-each.ts";
import { inOrder, isDeciding, type Rule, type RuleAction, stricter } from "./rule.ts";
import { typesOf } from "./rule-index.ts";

/**
 * Names rules that cannot do what their author wanted. It is sure of what it says and does not say everything:
 * two conditions that are written differently may still overlap. Built-in rules are there to be overridden,
 * so what shadows them is no finding.
 */
export function lintRules(rules: readonly Rule[]): readonly LintFinding[] {
  const slices = lintSlices(rules);
  for (;;) {
    const slice = slices.next();
    if (slice.done === true) return slice.value;
  }
}

/**
 * As `lintRules`, less than a millisecond at a time: who has other things to do looks after them in between. What too many
 * nested conditions leave uncompared is said at the rule where it ends.
 */
export function* lintSlices(rules: readonly Rule[]): Generator<void, readonly LintFinding[]> {
  const enabled = rules.filter((rule) => rule.isEnabled).sort(inOrder);
  const implications = new Implications();
  const findings: LintFinding[] = [];
  const dead = new Set<string>();
  let yieldedAt = 0;
  const isSliceOver = () => {
    const isOver = implications.steps - yieldedAt >= LINT_SLICE_STEPS;
    if (isOver) yieldedAt = implications.steps;
    return isOver;
  };
  for (const rule of enabled) {
    implications.steps += STEPS_PER_RULE;
    if (isSliceOver()) yield;
    const found = deadFinding(rule);
    if (found === undefined) continue;
    findings.push(found);
    dead.add(rule.id);
  }
  for (const rule of enabled) {
    implications.steps += STEPS_PER_RULE;
    if (isSliceOver()) yield;
    if (!dead.has(rule.id)) findings.push(...findingsOf(rule));
  }
  const alive = enabled.filter((rule) => isDeciding(rule.action) && !dead.has(rule.id));
  const candidates = new Candidates(alive);
  yield;
  for (const [rank, rule] of alive.entries()) {
    if (rule.source === "builtin") continue;
    for (const place of candidates.of(rule)) {
      const other = alive[place];
      implications.steps += 1;
      if (isSliceOver()) yield;
      if (implications.steps > POLICY_LIMITS.lintStepsMax) return [...findings, uncompared(rule)];
      if (other === undefined || other === rule) continue;
      if (place > rank && other.priority !== rule.priority) break;
      if (!isOverruled(rule, other)) continue;
      if (!implications.holds(rule.condition.expression, other.condition.expression)) continue;
      findings.push(overruled(rule, other, implications));
      break;
    }
  }
  return findings;
}

/** About half a millisecond. */
const LINT_SLICE_STEPS = 1_000;
/** What there is to find out about a rule by itself, in comparisons of two parts. */
const STEPS_PER_RULE = 50;

function uncompared(rule: Rule): LintFinding {
  const most = POLICY_LIMITS.lintStepsMax;
  const text = `and what comes after it was not compared with the other rules: that takes more than ${most} steps`;
  return finding("uncompared", rule, text);
}

/** The other one decides wherever both match. */
function isOverruled(rule: Rule, other: Rule): boolean {
  if (other.priority !== rule.priority) return other.priority < rule.priority;
  if (other.action === rule.action) return other.id < rule.id;
  return stricterOf(other.action, rule.action) === other.action;
}

function stricterOf(a: RuleAction, b: RuleAction): RuleAction {
  return isDeciding(a) && isDeciding(b) ? stricter(a, b) : a;
}

function overruled(rule: Rule, other: Rule, implications: Implications): LintFinding {
  const isContradiction = rule.priority === other.priority && rule.action !== other.action;
  const [own, others] = [rule, other].map(({ condition }) => implications.number(condition.expression));
  const isSame = own === others;
  const message = isContradiction
    ? `"${rule.id}" (${rule.action}) and "${other.id}" (${other.action}) disagree at priority ${rule.priority}` +
      `${isSame ? " on the same events" : ""}; ${other.action} wins`
    : `whatever "${rule.id}" matches is decided by "${other.id}" first`;
  return {
    kind: isContradiction ? "contradicting" : "shadowed",
    rule_id: rule.id,
    other_id: other.id,
    message,
    at: rule.at,
  };
}

function deadFinding(rule: Rule): LintFinding | undefined {
  const why = whyDead(rule.condition.expression);
  return why === undefined ? undefined : finding("dead", rule, `can never match: ${why}`);
}

const whyDead = onceEach((expression: Expression): string | undefined => {
  const parts = conjuncts(expression);
  if (parts.some((part) => part.kind === "literal" && part.value === false)) return "it is false";
  if (typesOf({ guard: guardOf(expression) }).length === 0)
    return "no type of event has all the fields that it reads";
  const keys = parts.flatMap((part) => guardOf(part).key ?? []);
  for (const [place, key] of keys.entries()) {
    const other = keys.slice(place + 1).find((next) => next.path === key.path && areDisjoint(key, next));
    if (other !== undefined) return `"${key.path}" would have to be two things at once`;
  }
  return undefined;
});

function conjuncts(expression: Expression): readonly Expression[] {
  return expression.kind === "and" ? childrenOf(expression).flatMap(conjuncts) : [expression];
}

function isBelow(host: string, domain: string): boolean {
  return host === domain || host.endsWith(`.${domain}`);
}

function areDisjoint(a: Key, b: Key): boolean {
  const meets = (host: string, key: Key) =>
    key.equal.has(host) || [...key.within].some((domain) => isBelow(host, domain));
  const below = (domain: string, key: Key) =>
    meets(domain, key) || [...key.equal, ...key.within].some((host) => isBelow(host, domain));
  return (
    ![...a.equal].some((value) => meets(value, b)) &&
    ![...a.within].some((domain) => below(domain, b)) &&
    ![...b.equal].some((value) => meets(value, a))
  );
}
