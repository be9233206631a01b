import type { PolicyFault } from "./fault.ts";
import { POLICY_LIMITS } from "./limits.ts";
import type { Rule } from "./rule.ts";

/** Adds up the patterns of one author's rules: each compiles in its bounds, and all together cost all of it. */
export class PatternTotal {
  #size = 0;

  /** The fault of the rule with which they are too large. */
  add({ id, condition, at }: Rule): PolicyFault | undefined {
    this.#size += condition.patternSize;
    const { patternSizesMax: most } = POLICY_LIMITS;
    if (this.#size <= most) return undefined;
    const message = `with rule "${id}" the patterns of all rules have about ${this.#size} instructions, limit ${most}`;
    return { code: "too_large", message, at, subject: id };
  }
}

/** The fault of the first rule, in this order, with which the patterns are too large. */
export function tooManyPatterns(rules: Iterable<Rule>): PolicyFault | undefined {
  const total = new PatternTotal();
  for (const rule of rules) {
    const fault = total.add(rule);
    if (fault !== undefined) return fault;
  }
  return undefined;
}
