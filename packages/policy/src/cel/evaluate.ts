import { type CelValue, equal, isList, isMap, isNumeric } from "../event/value.ts";
import { type BinaryOperator, type Expression, partsOf } from "./expression.ts";
import { isOver, type Meter, PART_STEPS, SPENT, stepsAmong, stepsOf } from "./meter.ts";
import { ABSENT, logical, NoValue, negation, notBool, noValueOf, type Outcome } from "./outcome.ts";

/** Fields by path, with `true` at the names above them, as a SecurityEvent has them; in a replay some are HIDDEN. */
export type Facts = ReadonlyMap<string, Outcome>;
/** One evaluation: the values of the loop variables by slot, and what is left of the work it may take. */
export interface Run {
  readonly locals: CelValue[];
  readonly meter: Meter;
}
export type Evaluate = (facts: Facts, run: Run) => Outcome;

/** Makes the function that evaluates an expression. It never throws and never changes the facts. */
export function evaluatorOf(expression: Expression): Evaluate {
  switch (expression.kind) {
    case "literal": {
      const { value } = expression;
      return () => value;
    }
    case "field": {
      const { path } = expression;
      return (facts) => facts.get(path) ?? ABSENT;
    }
    case "local": {
      const { slot } = expression;
      return (_, { locals }) => locals[slot] ?? null;
    }
    case "has": {
      const { path } = expression;
      return (facts) => facts.has(path);
    }
    case "not": {
      const of = evaluatorOf(expression.of);
      return (facts, run) => negation(of(facts, run));
    }
    case "and":
    case "or":
      return logicalOf(expression.kind === "or", expression.left, expression.right);
    case "has_member":
      return hasMemberOf(expression.of, expression.key);
    case "member":
      return strict([expression.of, expression.key], ([of, key]) =>
        memberOf(of as CelValue, key as CelValue),
      );
    case "negate":
      return strict([expression.of], ([value]) => negative(value as CelValue));
    case "binary":
      return binaryOf(expression.operator, expression.left, expression.right);
    case "list":
      return strict(expression.items, (values) => [...values]);
    case "call":
      return callOf(expression);
    case "choose": {
      const [test, whenTrue, whenFalse] = [expression.test, expression.whenTrue, expression.whenFalse].map(
        evaluatorOf,
      );
      return (facts, run) => {
        const outcome = test?.(facts, run) ?? ABSENT;
        if (outcome instanceof NoValue) return outcome;
        if (typeof outcome !== "boolean") return notBool;
        return (outcome ? whenTrue : whenFalse)?.(facts, run) ?? ABSENT;
      };
    }
    case "loop":
      return loopOf(expression);
  }
}

function logicalOf(decisive: boolean, left: Expression, right: Expression): Evaluate {
  const [first, second] = [evaluatorOf(left), evaluatorOf(right)];
  return (facts, run) => {
    const outcome = first(facts, run);
    return outcome === decisive ? decisive : logical(decisive, outcome, second(facts, run));
  };
}

/** All operands are needed: one without a value leaves the whole without one. */
function strict(
  operands: readonly Expression[],
  apply: (values: readonly CelValue[], meter: Meter) => Outcome,
): Evaluate {
  const inner = operands.map(evaluatorOf);
  return (facts, run) => {
    let none: NoValue | undefined;
    const values: CelValue[] = [];
    for (const evaluate of inner) {
      const outcome = evaluate(facts, run);
      if (outcome instanceof NoValue) none = noValueOf(none ?? true, outcome);
      else values.push(outcome);
    }
    return none ?? apply(values, run.meter);
  };
}

function callOf({ args, prepared }: Extract<Expression, { kind: "call" }>): Evaluate {
  const { apply, costPerKib } = prepared;
  const stepsFor = prepared.stepsFor ?? ((values: readonly CelValue[]) => stepsPerKib(values[0], costPerKib));
  return strict(args, (values, meter) => (isOver(meter, stepsFor(values)) ? SPENT : apply(values, meter)));
}

/** A step of the compiler's estimate is two of the meter's. */
function stepsPerKib(value: CelValue | undefined, costPerKib: number): number {
  return typeof value === "string" ? (value.length * costPerKib) / 512 : 0;
}

function hasMemberOf(of: Expression, key: string): Evaluate {
  const target = evaluatorOf(of);
  return (facts, run) => {
    const outcome = target(facts, run);
    if (outcome === ABSENT) return false;
    if (outcome instanceof NoValue) return outcome;
    return isMap(outcome) && outcome.has(key);
  };
}

const notMember = new NoValue("a key or an index of what is no map or list");

function memberOf(of: CelValue, key: CelValue): Outcome {
  if (isMap(of)) return typeof key === "string" ? (of.get(key) ?? ABSENT) : notMember;
  if (!isList(of) || !isNumeric(key)) return notMember;
  return of[Number(key)] ?? ABSENT;
}

function binaryOf(operator: BinaryOperator, leftSide: Expression, rightSide: Expression): Evaluate {
  const apply = operation(operator);
  const [left, right] = [evaluatorOf(leftSide), evaluatorOf(rightSide)];
  return (facts, run) => {
    const a = left(facts, run);
    const b = right(facts, run);
    if (a instanceof NoValue || b instanceof NoValue) return noValueOf(a, b) ?? ABSENT;
    const steps = operator === "in" ? stepsAmong(a, b) : stepsOf(a) + stepsOf(b);
    return isOver(run.meter, steps) ? SPENT : apply(a, b);
  };
}

function operation(operator: BinaryOperator): (a: CelValue, b: CelValue) => Outcome {
  switch (operator) {
    case "==":
      return equal;
    case "!=":
      return (a, b) => !equal(a, b);
    case "in":
      return isIn;
    case "<":
      return ordered((a, b) => a < b);
    case "<=":
      return ordered((a, b) => a <= b);
    case ">":
      return ordered((a, b) => a > b);
    case ">=":
      return ordered((a, b) => a >= b);
    default:
      return (a, b) => arithmetic(operator, a, b);
  }
}

const notOrdered = new NoValue("an order between values that have none");

function ordered(
  compare: (a: string | number | bigint | boolean, b: string | number | bigint | boolean) => boolean,
): (a: CelValue, b: CelValue) => Outcome {
  return (a, b) => {
    if (isNumeric(a) && isNumeric(b)) return compare(a, b);
    if (typeof a === "string" && typeof b === "string") return compare(a, b);
    return typeof a === "boolean" && typeof b === "boolean" ? compare(a, b) : notOrdered;
  };
}

function isIn(item: CelValue, of: CelValue): Outcome {
  if (isList(of)) return of.some((other) => equal(item, other));
  if (isMap(of)) return typeof item === "string" && of.has(item);
  return new NoValue("in of what is no list or map");
}

const INT_MAX = 2n ** 63n - 1n;
const INT_MIN = -(2n ** 63n);
const notNumbers = new NoValue("arithmetic with what does not go together");

function arithmetic(operator: string, a: CelValue, b: CelValue): Outcome {
  if (typeof a === "bigint" && typeof b === "bigint") return integer(operator, a, b);
  if (typeof a === "number" && typeof b === "number") return double(operator, a, b);
  if (operator !== "+") return notNumbers;
  if (typeof a === "string" && typeof b === "string") return a + b;
  return isList(a) && isList(b) ? [...a, ...b] : notNumbers;
}

function negative(value: CelValue): Outcome {
  return typeof value === "number" ? -value : arithmetic("-", 0n, value);
}

function integer(operator: string, a: bigint, b: bigint): Outcome {
  if (b === 0n && (operator === "/" || operator === "%")) return new NoValue("division by zero");
  const result =
    operator === "+"
      ? a + b
      : operator === "-"
        ? a - b
        : operator === "*"
          ? a * b
          : operator === "/"
            ? a / b
            : a % b;
  return result > INT_MAX || result < INT_MIN ? new NoValue("a number beyond 64 bits") : result;
}

function double(operator: string, a: number, b: number): Outcome {
  switch (operator) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      return a / b;
    default:
      return notNumbers;
  }
}

function loopOf(loop: Extract<Expression, { kind: "loop" }>): Evaluate {
  const range = evaluatorOf(loop.range);
  const body = evaluatorOf(loop.body);
  const steps = (1 + partsOf(loop.body)) * PART_STEPS;
  const over =
    loop.form === "all" || loop.form === "exists" ? quantify(loop.form === "exists") : collect(loop.form);
  return (facts, run) => {
    const outcome = range(facts, run);
    if (outcome instanceof NoValue) return outcome;
    const items = isList(outcome) ? outcome : isMap(outcome) ? [...outcome.keys()] : undefined;
    if (items === undefined) return new NoValue("a loop over what is no list or map");
    return over(items, (item) => {
      if (isOver(run.meter, steps)) return SPENT;
      run.locals[loop.slot] = item;
      return body(facts, run);
    });
  };
}

type Over = (items: readonly CelValue[], test: (item: CelValue) => Outcome) => Outcome;

function quantify(decisive: boolean): Over {
  return (items, test) => {
    let outcome: Outcome = !decisive;
    for (const item of items) {
      outcome = logical(decisive, outcome, test(item));
      if (outcome === decisive) return decisive;
    }
    return outcome;
  };
}

/** An item without a value leaves the whole loop without one; ABSENT before a fault, as everywhere. */
function collect(form: "exists_one" | "filter" | "map"): Over {
  return (items, test) => {
    const kept: CelValue[] = [];
    let none: NoValue | undefined;
    for (const item of items) {
      const outcome = test(item);
      if (outcome instanceof NoValue) none = noValueOf(none ?? true, outcome);
      else if (form === "map") kept.push(outcome);
      else if (outcome === true) kept.push(item);
      else if (outcome !== false) none = noValueOf(none ?? true, notBool);
    }
    if (none !== undefined) return none;
    return form === "exists_one" ? kept.length === 1 : kept;
  };
}
