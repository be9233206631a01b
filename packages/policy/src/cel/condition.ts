import { EVENT_TYPE_NAMES, isEventType } from "../event/event-table.ts";
import { fieldRow } from "../event/field-table.ts";
import { oneSpelling } from "../event/field-value.ts";
import type { FaultCode } from "../fault.ts";
import { POLICY_LIMITS } from "../limits.ts";
import { suggestion } from "../nearest.ts";
import { checkCost } from "./cost.ts";
import { evaluatorOf, type Facts } from "./evaluate.ts";
import { childrenOf, type Expression } from "./expression.ts";
import type { Outcome } from "./outcome.ts";
import { parseExpression } from "./parse.ts";
import { ExpressionProblem } from "./problem.ts";
import { resolve } from "./resolve.ts";

/** A compiled condition: typed, bounded, and unable to throw. */
export interface Condition {
  readonly source: string;
  readonly expression: Expression;
  /** Steps in the worst event that the bounds admit. */
  readonly cost: number;
  readonly evaluate: (facts: Facts) => Outcome;
}

export interface ConditionFault {
  readonly code: FaultCode;
  readonly message: string;
  /** In the source, in UTF-16 units. */
  readonly offset: number;
}

/** Compiles a rule's `match`. The first thing wrong with it is returned. */
export function compileCondition(source: string): Condition | ConditionFault {
  try {
    if (source.length > POLICY_LIMITS.expressionCharsMax) {
      const text = `it is longer than ${POLICY_LIMITS.expressionCharsMax} characters`;
      throw new ExpressionProblem("too_large", text, 0);
    }
    const { tree, check } = parseExpression(source);
    const expression = resolve(tree);
    check();
    checkLiterals(expression);
    const cost = checkCost(expression);
    const evaluate = evaluatorOf(expression);
    return Object.freeze({ source, expression, cost, evaluate: (facts: Facts) => evaluate(facts, []) });
  } catch (error) {
    if (!(error instanceof ExpressionProblem)) throw error;
    return { code: error.code, message: error.message, offset: Math.min(error.offset, source.length) };
  }
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
