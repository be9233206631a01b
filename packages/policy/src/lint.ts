import { canonicalText, childrenOf, type Expression } from "./cel/expression.ts";
import { type Guard, guardOf, type Key } from "./cel/guard.ts";
import type { LintFinding } from "./lint-finding.ts";
import { finding, findingsOf } from "./lint-one.ts";
import { inOrder, isDeciding, type Rule, type RuleAction, stricter } from "./rule.ts";
import { typesOf } from "./rule-index.ts";

/**
 * Names rules that cannot do what their author wanted. It is sure of what it says and does not say everything:
 * two conditions that are written differently may still overlap. Built-in rules are there to be overridden,
 * so what shadows them is no finding.
 */
export function lintRules(rules: readonly Rule[]): readonly LintFinding[] {
  const enabled = rules.filter((rule) => rule.isEnabled).sort(inOrder);
  const texts = new Texts();
  const findings = enabled.flatMap((rule) => deadFinding(rule, texts) ?? []);
  const dead = new Set(findings.map(({ rule_id }) => rule_id));
  for (const rule of enabled) if (!dead.has(rule.id)) findings.push(...findingsOf(rule));
  const alive = enabled.filter((rule) => isDeciding(rule.action) && !dead.has(rule.id));
  for (const [rank, rule] of alive.entries()) {
    if (rule.source === "builtin") continue;
    const other = alive.find(
      (candidate, place) =>
        candidate !== rule &&
        (place < rank || candidate.priority === rule.priority) &&
        isOverruled(rule, candidate) &&
        implies(rule.condition.expression, candidate.condition.expression, texts),
    );
    if (other !== undefined) findings.push(overruled(rule, other, texts));
  }
  return findings;
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

function overruled(rule: Rule, other: Rule, texts: Texts): LintFinding {
  const isContradiction = rule.priority === other.priority && rule.action !== other.action;
  const isSame = texts.of(rule.condition.expression) === texts.of(other.condition.expression);
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

function deadFinding(rule: Rule, texts: Texts): LintFinding | undefined {
  const why = whyDead(rule, texts);
  return why === undefined ? undefined : finding("dead", rule, `can never match: ${why}`);
}

function whyDead(rule: Rule, texts: Texts): string | undefined {
  const parts = conjuncts(rule.condition.expression);
  if (parts.some((part) => part.kind === "literal" && part.value === false)) return "it is false";
  if (typesOf(rule).length === 0) return "no type of event has all the fields that it reads";
  const keys = parts.flatMap((part) => texts.guard(part).key ?? []);
  for (const [place, key] of keys.entries()) {
    const other = keys.slice(place + 1).find((next) => next.path === key.path && areDisjoint(key, next));
    if (other !== undefined) return `"${key.path}" would have to be two things at once`;
  }
  return undefined;
}

function conjuncts(expression: Expression): readonly Expression[] {
  return expression.kind === "and" ? childrenOf(expression).flatMap(conjuncts) : [expression];
}

/** Remembers texts and guards of expressions for one run: every pair of rules asks for them. */
class Texts {
  readonly #texts = new Map<Expression, string>();
  readonly #guards = new Map<Expression, Guard>();
  readonly #keys = new Map<Expression, Key | null>();

  of(expression: Expression): string {
    const text = this.#texts.get(expression) ?? canonicalText(expression);
    this.#texts.set(expression, text);
    return text;
  }

  guard(expression: Expression): Guard {
    const guard = this.#guards.get(expression) ?? guardOf(expression);
    this.#guards.set(expression, guard);
    return guard;
  }

  /** The key of a condition that says nothing but its key. */
  wholeKey(expression: Expression): Key | null {
    const known = this.#keys.get(expression);
    if (known !== undefined) return known;
    const key = this.#newKey(expression);
    this.#keys.set(expression, key);
    return key;
  }

  #newKey(expression: Expression): Key | null {
    if (expression.kind !== "binary" && expression.kind !== "call") return null;
    const { key, types } = this.guard(expression);
    if (key !== undefined) return key;
    return types === undefined ? null : { path: "event.type", equal: types, within: new Set() };
  }
}

/** True only when every event that makes `narrow` true makes `wide` true. */
function implies(narrow: Expression, wide: Expression, texts: Texts): boolean {
  if (wide.kind === "literal") return wide.value === true;
  if (narrow.kind === wide.kind && texts.of(narrow) === texts.of(wide)) return true;
  if (narrow.kind === "or") {
    return implies(narrow.left, wide, texts) && implies(narrow.right, wide, texts);
  }
  if (wide.kind === "and") {
    return implies(narrow, wide.left, texts) && implies(narrow, wide.right, texts);
  }
  if (wide.kind === "or" && (implies(narrow, wide.left, texts) || implies(narrow, wide.right, texts)))
    return true;
  if (narrow.kind === "and") {
    return implies(narrow.left, wide, texts) || implies(narrow.right, wide, texts);
  }
  if (wide.kind === "has") return texts.guard(narrow).needs.has(wide.path);
  return isWithin(texts.wholeKey(narrow), texts.wholeKey(wide));
}

function isWithin(narrow: Key | null, wide: Key | null): boolean {
  if (narrow === null || wide === null || narrow.path !== wide.path) return false;
  const covers = (host: string) => [...wide.within].some((domain) => isBelow(host, domain));
  const allEqual = [...narrow.equal].every((value) => wide.equal.has(value) || covers(value));
  return allEqual && [...narrow.within].every(covers);
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
