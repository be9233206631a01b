import { EVENT_TYPE_NAMES, isEventType } from "../event/event-table.ts";
import { fieldRow } from "../event/field-table.ts";
import { oneSpelling } from "../event/field-value.ts";
import type { FaultCode } from "../fault.ts";
import { POLICY_LIMITS } from "../limits.ts";
import { suggestion } from "../nearest.ts";
import { checkCost } from "./cost.ts";
import { evaluatorOf, type Facts } from "./evaluate.ts";
import { childrenOf, type Expression, partsOf } from "./expression.ts";
import { createMeter, isOver, isSpent, type Meter, PART_STEPS, SPENT } from "./meter.ts";
import { NoValue, type Outcome } from "./outcome.ts";
import { parseExpression } from "./parse.ts";
import { ExpressionProblem } from "./problem.ts";
import { resolve } from "./resolve.ts";

/** A compiled condition: typed, bounded, and unable to throw. */
export interface Condition {
  readonly source: string;
  readonly expression: Expression;
  /** Steps in the worst event that the bounds admit. */
  readonly cost: number;
  /** Of its patterns together, in about instructions. */
  readonly patternSize: number;
  /** Takes its work from the meter of the decision that it is a part of: SPENT where too little is left. */
  readonly evaluate: (facts: Facts, meter?: Meter) => Outcome;
}

export interface ConditionFault {
  readonly code: FaultCode;
  readonly message: string;
  /** In the source, in UTF-16 units. */
  readonly offset: number;
}

/**
 * What was compiled last, by its text: a change of one rule reads all of them again. A condition never changes, so it may
 * stand in several snapshots.
 */
const COMPILED = new Map<string, Condition>();

/** Compiles a rule's `match`. The first thing wrong with it is returned. */
export function compileCondition(source: string): Condition | ConditionFault {
  const known = COMPILED.get(source);
  COMPILED.delete(source);
  const compiled = known ?? compileText(source);
  if (isCondition(compiled)) {
    COMPILED.set(source, compiled);
    const [oldest] = COMPILED.keys();
    if (COMPILED.size > POLICY_LIMITS.compiledMax && oldest !== undefined) COMPILED.delete(oldest);
  }
  return compiled;
}

function compileText(source: string): Condition | ConditionFault {
  try {
    if (source.length > POLICY_LIMITS.expressionCharsMax) {
      const text = `it is longer than ${POLICY_LIMITS.expressionCharsMax} characters`;
      throw new ExpressionProblem("too_large", text, 0);
    }
    const { tree, check } = parseExpression(source);
    const expression = resolve(tree);
    const patternSize = compilePatterns(expression);
    check();
    checkLiterals(expression);
    const cost = checkCost(expression);
    return Object.freeze({ source, expression, cost, patternSize, evaluate: meteredOf(expression) });
  } catch (error) {
    if (!(error instanceof ExpressionProblem)) throw error;
    return { code: error.code, message: error.message, offset: Math.min(error.offset, source.length) };
  }
}

/** What has no value once the work has run out may have had one: absence is no excuse then. */
function meteredOf(expression: Expression): Condition["evaluate"] {
  const evaluate = evaluatorOf(expression);
  const steps = partsOf(expression) * PART_STEPS;
  return (facts, meter = createMeter()) => {
    if (isOver(meter, steps)) return SPENT;
    const outcome = evaluate(facts, { locals: [], meter });
    return outcome instanceof NoValue && isSpent(meter) ? SPENT : outcome;
  };
}

/** All of them, once their sizes are known to be in the bounds. Gives their size together. */
function compilePatterns(expression: Expression): number {
  const calls = callsIn(expression).flatMap(({ prepared: { pattern }, at }) => {
    return pattern === undefined ? [] : [{ pattern, at }];
  });
  let size = 0;
  for (const { pattern, at } of calls) {
    size += pattern.size;
    if (size <= POLICY_LIMITS.patternSizeMax) continue;
    const text = `its patterns have about ${size} instructions together, limit ${POLICY_LIMITS.patternSizeMax}`;
    throw new ExpressionProblem("too_large", text, at);
  }
  for (const { pattern } of calls) pattern.compile();
  return size;
}

function callsIn(expression: Expression): Extract<Expression, { kind: "call" }>[] {
  const inner = childrenOf(expression).flatMap(callsIn);
  return expression.kind === "call" ? [expression, ...inner] : inner;
}

export function isCondition(compiled: Condition | ConditionFault): compiled is Condition {
  return "evaluate" in compiled;
}

/** A field that is compared with what it can never be is a typing error, not a rule that never fires. */
function checkLiterals(expression: Expression): void {
  if (expression.kind === "binary" && ["==", "!=", "in"].includes(expression.operator)) {
    const { left, right } = expression;
    if (left.kind === "field") checkAgainst(left.path, right.kind === "list" ? right.items : [right]);
    if (right.kind === "field") checkAgainst(right.path, [left]);
  }
  for (const child of childrenOf(expression)) checkLiterals(child);
}

function checkAgainst(path: string, others: readonly Expression[]): void {
  for (const other of others) {
    if (other.kind !== "literal" || typeof other.value !== "string") continue;
    const wrong = whyImpossible(path, other.value);
    if (wrong !== undefined) {
      throw new ExpressionProblem("bad_literal", `"${path}" is never "${other.value}": ${wrong}`, other.at);
    }
  }
}

function whyImpossible(path: string, value: string): string | undefined {
  const row = fieldRow(path);
  if (path === "event.type") {
    return isEventType(value) ? undefined : `no such type${suggestion(value, EVENT_TYPE_NAMES)}`;
  }
  if (row?.values !== undefined && !row.values.includes(value)) {
    return `it is one of ${row.values.join(", ")}`;
  }
  const one = row === undefined ? value : oneSpelling(row.kind, value);
  if (one === value) return undefined;
  return one === null ? `it is no ${row?.kind === "host" ? "host" : "address"}` : `it is written "${one}"`;
}
