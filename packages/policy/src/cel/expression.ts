import type { CelValue } from "../event/value.ts";
import { onceEach } from "../once-each.ts";
import type { Meter } from "./meter.ts";
import type { Outcome } from "./outcome.ts";

/** `<`, `==` and so on, as written. */
export type BinaryOperator = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "+" | "-" | "*" | "/" | "%";
export type LoopForm = "all" | "exists" | "exists_one" | "filter" | "map";

/**
 * A checked condition: the part of CEL that rules may use, with every path resolved against the field table.
 * `at` is the offset in the source. Nothing in it comes from the library.
 */
export type Expression = { readonly at: number } & (
  | { readonly kind: "literal"; readonly value: CelValue }
  | { readonly kind: "field"; readonly path: string }
  /** A variable of a loop; `slot` counts the loops around it. */
  | { readonly kind: "local"; readonly slot: number }
  | { readonly kind: "member"; readonly of: Expression; readonly key: Expression }
  /** `has(http.host)`, and of a map's key: `has(mcp.request.arguments.path)`. */
  | { readonly kind: "has"; readonly path: string }
  | { readonly kind: "has_member"; readonly of: Expression; readonly key: string }
  | {
      readonly kind: "call";
      readonly name: string;
      readonly args: readonly Expression[];
      /** Follows from the name and the arguments; made once, because patterns are dear to compile. */
      readonly prepared: Prepared;
    }
  | { readonly kind: "not" | "negate"; readonly of: Expression }
  | { readonly kind: "and" | "or"; readonly left: Expression; readonly right: Expression }
  | {
      readonly kind: "choose";
      readonly test: Expression;
      readonly whenTrue: Expression;
      readonly whenFalse: Expression;
    }
  | {
      readonly kind: "binary";
      readonly operator: BinaryOperator;
      readonly left: Expression;
      readonly right: Expression;
    }
  | { readonly kind: "list"; readonly items: readonly Expression[] }
  | {
      readonly kind: "loop";
      readonly form: LoopForm;
      readonly slot: number;
      readonly range: Expression;
      readonly body: Expression;
    }
);

/** A function with its constant arguments worked in. It gets values only; absence and faults never reach it. */
export interface Prepared {
  readonly apply: (values: readonly CelValue[], meter: Meter) => Outcome;
  /** Steps for each KiB of text that goes in. */
  readonly costPerKib: number;
  /** Steps of the meter for one call with these values, where they are not those for each KiB. */
  readonly stepsFor?: (values: readonly CelValue[]) => number;
  readonly pattern?: PreparedPattern;
}

/** A pattern that is compiled when the expression as a whole is known to be within its bounds. */
export interface PreparedPattern {
  /** Before anything compiles it, in about instructions. */
  readonly size: number;
  /** Throws an ExpressionProblem for what is no pattern. */
  readonly compile: () => void;
}

/** The expressions directly inside one. */
export function childrenOf(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case "literal":
    case "field":
    case "local":
    case "has":
      return [];
    case "has_member":
    case "not":
    case "negate":
      return [expression.of];
    case "member":
      return [expression.of, expression.key];
    case "call":
      return expression.args;
    case "and":
    case "or":
    case "binary":
      return [expression.left, expression.right];
    case "choose":
      return [expression.test, expression.whenTrue, expression.whenFalse];
    case "list":
      return expression.items;
    case "loop":
      return [expression.range, expression.body];
  }
}

/** How many expressions there are, with all inside. */
export function partsOf(expression: Expression): number {
  return childrenOf(expression).reduce((sum, child) => sum + partsOf(child), 1);
}

/** The same meaning gives the same text, whatever its spaces, quotes and positions were. */
export const canonicalText = onceEach(textOf);

function textOf(expression: Expression): string {
  const own = Object.entries(expression).map(([key, value]) => {
    if (key === "at" || key === "prepared") return "";
    if (isExpression(value)) return `${key}:${textOf(value)}`;
    if (Array.isArray(value) && value.every(isExpression)) return `${key}:[${value.map(textOf)}]`;
    return `${key}:${typeof value === "bigint" ? `${value}n` : JSON.stringify(value)}`;
  });
  return `(${own.join(" ")})`;
}

function isExpression(value: unknown): value is Expression {
  return typeof value === "object" && value !== null && "kind" in value && "at" in value;
}
