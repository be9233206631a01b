import { RE2JS } from "re2js";
import { POLICY_LIMITS } from "../limits.ts";

/** A pattern of `matches`: found anywhere in the text, in time linear in the text's length. */
export interface Pattern {
  test(text: string): boolean;
  /** Instructions; the worst case is this number times the length of the text. */
  readonly program: number;
}

/** Compiles RE2 syntax; gives the reason when it cannot. */
export function compilePattern(source: string): Pattern | string {
  if (source.length > POLICY_LIMITS.patternCharsMax) {
    return `it is longer than ${POLICY_LIMITS.patternCharsMax} characters`;
  }
  try {
    const compiled = RE2JS.compile(source);
    const program = compiled.programSize();
    if (program > POLICY_LIMITS.patternProgramMax) {
      return `it compiles to ${program} instructions, limit ${POLICY_LIMITS.patternProgramMax}`;
    }
    return { test: (text) => compiled.test(text), program };
  } catch (error) {
    return error instanceof Error ? error.message : "it cannot be compiled";
  }
}
