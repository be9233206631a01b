import { Failure } from "@capsem/base";
import { PATTERN_LIMITS } from "../limits.ts";
import { type CharSet, WORD } from "./char-set.ts";
import type { Edge, Pattern } from "./parse.ts";

/** A step of a compiled pattern. Numbers are those of further steps. */
export type Step =
  | { readonly kind: "set"; readonly set: number; readonly next: number }
  | { readonly kind: "edge"; readonly edge: Edge; readonly next: number }
  | { readonly kind: "split"; readonly next: number; readonly other: number }
  | { readonly kind: "match" };

export interface Program {
  readonly steps: readonly Step[];
  readonly start: number;
  readonly sets: readonly CharSet[];
}

/** A pattern as steps, built from its end. Throws "invalid_input" where repeats make it too long. */
export function compileProgram(pattern: Pattern): Program {
  const compiler = new Compiler();
  const match = compiler.add({ kind: "match" });
  const start = compiler.compile(pattern, match);
  return { steps: compiler.steps, start, sets: compiler.sets };
}

class Compiler {
  readonly steps: Step[] = [];
  /** The first is what a word is made of: edges of words ask for it. */
  readonly sets: CharSet[] = [WORD];
  readonly #numbers = new Map<string, number>();
  #visits = 0;

  /** Where to begin for this pattern to be followed by `next`. */
  compile(pattern: Pattern, next: number): number {
    this.#visits += 1;
    // Empty groups make no steps, and can be repeated as often.
    if (this.#visits > PATTERN_LIMITS.stepsMax) {
      throw new Failure("invalid_input", "Cannot use the pattern: its repeats make it too long");
    }
    switch (pattern.kind) {
      case "set":
        return this.add({ kind: "set", set: this.#numberOf(pattern.set), next });
      case "edge":
        return this.add({ kind: "edge", edge: pattern.edge, next });
      case "sequence":
        return pattern.parts.reduceRight((after, part) => this.compile(part, after), next);
      case "choice":
        return pattern.parts
          .map((part) => this.compile(part, next))
          .reduceRight((other, one) => this.add({ kind: "split", next: one, other }));
      case "repeat":
        return this.#repeat(pattern, next);
    }
  }

  add(step: Step): number {
    this.steps.push(step);
    return this.steps.length - 1;
  }

  #repeat({ part, min, max }: Pattern & { readonly kind: "repeat" }, next: number): number {
    let start = next;
    if (max === null) {
      start = this.add({ kind: "match" });
      this.steps[start] = { kind: "split", next: this.compile(part, start), other: next };
    }
    for (let left = (max ?? min) - min; left > 0; left -= 1)
      start = this.add({ kind: "split", next: this.compile(part, start), other: next });
    for (let left = min; left > 0; left -= 1) start = this.compile(part, start);
    return start;
  }

  #numberOf(set: CharSet): number {
    const key = JSON.stringify(set);
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    this.sets.push(set);
    this.#numbers.set(key, this.sets.length - 1);
    return this.sets.length - 1;
  }
}
