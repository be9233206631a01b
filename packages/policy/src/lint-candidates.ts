import { canonicalText, childrenOf, type Expression } from "./cel/expression.ts";
import { readsOf } from "./cel/reads.ts";
import { domainsOver, wholeKeyOf } from "./implication.ts";
import { onceEach } from "./once-each.ts";
import type { Rule } from "./rule.ts";

/**
 * Finds the rules that a rule may be shadowed by without comparing it to all. For one condition to make another true,
 * some part of the wide one must follow from a part of the narrow one: it is the same, or asks for one of its values, or
 * for a field that it reads. Each such way is a mark, and both have it. Leaves none out.
 */
export class Candidates {
  readonly #byMark = new Map<string, number[]>();
  readonly #always: number[] = [];

  /** How many rules have each mark. */
  readonly #counts = new Map<string, number>();

  /** Places in `rules` are what is found. */
  constructor(rules: readonly Rule[]) {
    for (const { condition } of rules) this.#count(condition.expression);
    for (const [place, { condition }] of rules.entries()) {
      const marks = this.#wideMarks(condition.expression);
      if (marks === null) this.#always.push(place);
      for (const mark of marks ?? []) {
        const places = this.#byMark.get(mark);
        if (places === undefined) this.#byMark.set(mark, [place]);
        else places.push(place);
      }
    }
  }

  /** Ascending, each once. */
  of({ condition }: Pick<Rule, "condition">): readonly number[] {
    const found = new Set(this.#always);
    for (const mark of narrowMarksOf(condition.expression)) {
      for (const place of this.#byMark.get(mark) ?? []) found.add(place);
    }
    return [...found].sort((a, b) => a - b);
  }

  #count(expression: Expression): void {
    if (expression.kind === "and" || expression.kind === "or") {
      for (const part of childrenOf(expression)) this.#count(part);
      return;
    }
    for (const mark of marksOf(expression)) this.#counts.set(mark, (this.#counts.get(mark) ?? 0) + 1);
  }

  /** One of them is there where the condition follows from another. Null where it may follow without any. */
  #wideMarks(expression: Expression): ReadonlySet<string> | null {
    if (expression.kind === "literal" && expression.value === true) return null;
    if (expression.kind !== "and" && expression.kind !== "or") return marksOf(expression);
    const [left, right] = [this.#wideMarks(expression.left), this.#wideMarks(expression.right)];
    if (expression.kind === "or") {
      return left === null || right === null ? null : new Set([...left, ...right]);
    }
    // Both sides must follow: the rarer one tells more rules apart.
    if (left === null || right === null) return left ?? right;
    return this.#weightOf(left) <= this.#weightOf(right) ? left : right;
  }

  #weightOf(marks: ReadonlySet<string>): number {
    return [...marks].reduce((sum, mark) => sum + (this.#counts.get(mark) ?? 0), 0);
  }
}

/** Of a condition without parts. */
const marksOf = onceEach((expression: Expression): ReadonlySet<string> => {
  const marks = new Set([`is ${canonicalText(expression)}`]);
  if (expression.kind === "has") marks.add(`has ${expression.path}`);
  const key = wholeKeyOf(expression);
  for (const value of key?.equal ?? []) marks.add(`equal ${key?.path} ${value}`);
  for (const domain of key?.within ?? []) marks.add(`within ${key?.path} ${domain}`);
  return marks;
});

const narrowMarksOf = onceEach((expression: Expression): ReadonlySet<string> => {
  const marks = new Set<string>();
  addNarrowMarks(expression, marks);
  const { values, presence } = readsOf(expression);
  for (const path of [...values, ...presence]) marks.add(`has ${path}`);
  return marks;
});

function addNarrowMarks(expression: Expression, marks: Set<string>): void {
  if (expression.kind === "and" || expression.kind === "or") {
    addNarrowMarks(expression.left, marks);
    addNarrowMarks(expression.right, marks);
    return;
  }
  marks.add(`is ${canonicalText(expression)}`);
  const key = wholeKeyOf(expression);
  for (const value of key?.equal ?? []) marks.add(`equal ${key?.path} ${value}`);
  for (const host of [...(key?.equal ?? []), ...(key?.within ?? [])]) {
    for (const domain of domainsOver(host)) marks.add(`within ${key?.path} ${domain}`);
  }
}
