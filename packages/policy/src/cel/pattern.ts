import { RE2JS } from "re2js";
import { POLICY_LIMITS } from "../limits.ts";
import { type Instruction, Matcher } from "./matcher.ts";
import type { Meter } from "./meter.ts";

/** A pattern of `matches`: found anywhere in the text, in time linear in the text's length. */
export interface Pattern {
  /** Undefined where the meter has too little left. */
  test(text: string, meter: Meter): boolean | undefined;
}

/** The library's program: no part of what it promises, so its version is fixed and a test compares with its engine. */
interface LibraryProgram {
  readonly inst: readonly Instruction[];
  readonly start: number;
}

/** Compiles RE2 syntax; gives the reason when it cannot. The caller has looked at its size before. */
export function compilePattern(source: string): Pattern | string {
  try {
    const compiled = RE2JS.compile(source);
    const size = compiled.programSize();
    if (size > POLICY_LIMITS.patternProgramMax) {
      return `it compiles to ${size} instructions, limit ${POLICY_LIMITS.patternProgramMax}`;
    }
    return lazyPattern(compiled);
  } catch (error) {
    return error instanceof Error ? error.message : "it cannot be compiled";
  }
}

/** Most patterns of a file are never asked of any event. */
function lazyPattern(compiled: RE2JS): Pattern {
  let matcher: Matcher | undefined;
  return {
    test(text, meter) {
      matcher ??= matcherOf(compiled);
      return matcher.test(text, meter);
    },
  };
}

function matcherOf({ re2Input }: RE2JS): Matcher {
  const { inst, start }: LibraryProgram = re2Input.prog;
  return new Matcher({ instructions: inst, start, bounds: re2Input.dfa.classBounds });
}
