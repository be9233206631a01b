import { canonicalText, childrenOf, type Expression } from "./cel/expression.ts";
import { guardOf, type Key } from "./cel/guard.ts";
import { onceEach } from "./once-each.ts";

/** Two of them are one pair: so many different parts no set of rules has. */
const PARTS_MAX = 2 ** 26;
/** Answers that are kept; beyond it all are forgotten, because most pairs come together. */
const KNOWN_MAX = 100_000;

/**
 * Whether one condition makes another one true, as far as their forms tell. Counts its work: two conditions of nested
 * `&&` and `||` have as many pairs of parts as the product of their sizes, and without a memory many more ways to them.
 */
export class Implications {
  /** Pairs of parts that were compared, and texts in them. */
  steps = 0;
  readonly #numbers = new Map<Expression, number>();
  readonly #numberOf = new Map<string, number>();
  readonly #known = new Map<number, boolean>();

  /** True only when every event that makes `narrow` true makes `wide` true. */
  holds(narrow: Expression, wide: Expression): boolean {
    this.steps += 1;
    if (wide.kind === "literal") return wide.value === true;
    const pair = this.number(narrow) * PARTS_MAX + this.number(wide);
    if (this.number(narrow) === this.number(wide)) return true;
    const known = this.#known.get(pair);
    if (known !== undefined) return known;
    const holds = this.#compare(narrow, wide);
    if (this.#known.size >= KNOWN_MAX) this.#known.clear();
    this.#known.set(pair, holds);
    return holds;
  }

  #compare(narrow: Expression, wide: Expression): boolean {
    if (narrow.kind === "or") return this.holds(narrow.left, wide) && this.holds(narrow.right, wide);
    if (wide.kind === "and") return this.holds(narrow, wide.left) && this.holds(narrow, wide.right);
    if (wide.kind === "or" && (this.holds(narrow, wide.left) || this.holds(narrow, wide.right))) return true;
    if (narrow.kind === "and") return this.holds(narrow.left, wide) || this.holds(narrow.right, wide);
    if (wide.kind === "has") return guardOf(narrow).needs.has(wide.path);
    return this.#isWithin(wholeKeyOf(narrow), wholeKeyOf(wide));
  }

  /** The same for expressions that mean the same, whatever their spaces, quotes and places are. */
  number(expression: Expression): number {
    const known = this.#numbers.get(expression);
    if (known !== undefined) return known;
    const isBranch = expression.kind === "and" || expression.kind === "or";
    const text = isBranch
      ? `${expression.kind} ${childrenOf(expression).map((child) => this.number(child))}`
      : canonicalText(expression);
    const number = this.#numberOf.get(text) ?? this.#numberOf.size;
    this.#numberOf.set(text, number);
    this.#numbers.set(expression, number);
    return number;
  }

  #isWithin(narrow: Key | null, wide: Key | null): boolean {
    if (narrow === null || wide === null || narrow.path !== wide.path) return false;
    this.steps += narrow.equal.size + narrow.within.size;
    const covers = (host: string) => domainsOver(host).some((domain) => wide.within.has(domain));
    const allEqual = [...narrow.equal].every((value) => wide.equal.has(value) || covers(value));
    return allEqual && [...narrow.within].every(covers);
  }
}

/** The key of a condition that says nothing but its key. */
export const wholeKeyOf = onceEach((expression: Expression): Key | null => {
  if (expression.kind !== "binary" && expression.kind !== "call") return null;
  const { key, types } = guardOf(expression);
  if (key !== undefined) return key;
  return types === undefined ? null : { path: "event.type", equal: types, within: new Set() };
});

/** The host itself and each domain that it lies below. */
export function domainsOver(host: string): readonly string[] {
  const domains = [host];
  for (let dot = host.indexOf("."); dot >= 0; dot = host.indexOf(".", dot + 1)) {
    domains.push(host.slice(dot + 1));
  }
  return domains;
}
