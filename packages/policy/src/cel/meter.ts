import type { CelValue } from "../event/value.ts";
import { isList, isMap } from "../event/value.ts";
import { POLICY_LIMITS } from "../limits.ts";
import { NoValue } from "./outcome.ts";

/**
 * What is left of the work that one decision may take, in steps of about 10 ns. What is taken follows from the rules
 * and the event alone, never from the clock or from what was judged before: a dry run, a replay and the act agree.
 * A plain field, because the innermost loops count with it.
 */
export interface Meter {
  left: number;
}

export function createMeter(): Meter {
  return { left: POLICY_LIMITS.decisionStepsMax };
}

/** True when too little was left: then nothing is, and the work is not to be done. */
export function isOver(meter: Meter, steps: number): boolean {
  meter.left -= steps;
  return meter.left < 0;
}

export function isSpent(meter: Meter): boolean {
  return meter.left < 0;
}

/** Of the rule in which the work ran out, and of all after it: what cannot be judged is refused. */
export const SPENT = new NoValue(
  `the rules up to it take more than ${POLICY_LIMITS.decisionStepsMax} steps for this event`,
);

/** One part of an expression, besides what is counted of the values that it works on. */
export const PART_STEPS = 4;
/** A list or a map is compared item by item, with all that it holds. */
const DEEP_STEPS = POLICY_LIMITS.jsonNodesMax;
/** Texts are compared and copied some 100 bytes at a time. */
const CHARS_PER_STEP = 64;

/** Steps to compare a value, or to copy it. */
export function stepsOf(value: CelValue): number {
  if (typeof value === "string") return value.length / CHARS_PER_STEP;
  return isList(value) || isMap(value) ? DEEP_STEPS : 0;
}

/** Steps to look for a value among the items of a list. */
export function stepsAmong(item: CelValue, list: CelValue): number {
  return isList(list) ? list.length * (PART_STEPS + stepsOf(item)) : PART_STEPS;
}
