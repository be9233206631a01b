import type { CelValue } from "../event/value.ts";

/**
 * No value. Two reasons exist, and they are not mixed:
 * ABSENT, the event does not have what is read: the condition does not match;
 * a fault, what is there cannot be computed (a text where a number is needed): the rule blocks.
 * Where both meet, ABSENT wins: otherwise a rule about HTTP could block a DNS query.
 * A replay has a third: HIDDEN, a value was there and is no longer known.
 */
export class NoValue {
  readonly fault: string | undefined;
  constructor(fault: string | undefined) {
    this.fault = fault;
    Object.freeze(this);
  }
}

export const ABSENT = new NoValue(undefined);
/** Stands for every value at once: a result that is not HIDDEN is the same whatever was there. */
export const HIDDEN = new NoValue(undefined);
export type Outcome = CelValue | NoValue;

/** For operators that need all their operands: why there is no result. */
export function noValueOf(a: Outcome, b: Outcome): NoValue | undefined {
  if (a === ABSENT || b === ABSENT) return ABSENT;
  if (a === HIDDEN || b === HIDDEN) return HIDDEN;
  if (a instanceof NoValue) return a;
  return b instanceof NoValue ? b : undefined;
}

export const notBool = new NoValue("a condition is not true or false");

/** `decisive` is false for `&&` and true for `||`: one such side decides, whatever the other is. */
export function logical(decisive: boolean, left: Outcome, right: Outcome): Outcome {
  if (left === decisive || right === decisive) return decisive;
  const none = noValueOf(left, right);
  // What is hidden may be the side that decides, whatever the other one lacks.
  if (none !== undefined) return left === HIDDEN || right === HIDDEN ? HIDDEN : none;
  return typeof left === "boolean" && typeof right === "boolean" ? !decisive : notBool;
}

export function negation(of: Outcome): Outcome {
  if (of instanceof NoValue) return of;
  return typeof of === "boolean" ? !of : notBool;
}
