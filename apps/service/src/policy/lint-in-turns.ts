import { type LintFinding, lintSlices, type Rule } from "@capsem/policy";
import { inTurns } from "./next-turn.ts";

/** What the linter has to say, with everybody else served between its slices. */
export function lintInTurns(rules: readonly Rule[]): Promise<readonly LintFinding[]> {
  return inTurns(lintSlices(rules));
}
