import { Failure } from "@capsem/base";
import { PATTERN_LIMITS } from "../limits.ts";
import { type CharSet, DIGITS, foldedSet, negated, SPACE, unionOf, WORD } from "./char-set.ts";

/** A pattern as a tree. What a lazy quantifier would prefer has no meaning where only a match is asked for. */
export type Pattern =
  | { readonly kind: "set"; readonly set: CharSet }
  | { readonly kind: "edge"; readonly edge: Edge }
  | { readonly kind: "sequence"; readonly parts: readonly Pattern[] }
  | { readonly kind: "choice"; readonly parts: readonly Pattern[] }
  | { readonly kind: "repeat"; readonly part: Pattern; readonly min: number; readonly max: number | null };

export type Edge = "start" | "end" | "word" | "not word";

/**
 * RE2's syntax, without Unicode classes and without flags within a pattern. Back references and look-around are in no
 * pattern that is matched in linear time. Throws "invalid_input".
 */
export function parsePattern(text: string, ignoreCase: boolean): Pattern {
  if (text.length > PATTERN_LIMITS.charactersMax) {
    throw refused(`${text.length} characters, limit ${PATTERN_LIMITS.charactersMax}`);
  }
  return new PatternParser(text, ignoreCase).parse();
}

function refused(state: string): Failure {
  return new Failure("invalid_input", `Cannot use the pattern: ${state}`);
}

const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, a: 7 };
const CLASSES: Readonly<Record<string, CharSet>> = {
  d: DIGITS,
  w: WORD,
  s: SPACE,
  D: negated(DIGITS),
  W: negated(WORD),
  S: negated(SPACE),
};
const EDGES: Readonly<Record<string, Edge>> = { b: "word", B: "not word", A: "start", z: "end", Z: "end" };
/** A text is matched line by line: none has this in it. */
const LINE_FEED = 10;

class PatternParser {
  readonly #points: readonly string[];
  readonly #ignoreCase: boolean;
  #at = 0;
  #depth = 0;

  constructor(text: string, ignoreCase: boolean) {
    this.#points = [...text];
    this.#ignoreCase = ignoreCase;
  }

  parse(): Pattern {
    const pattern = this.#choice();
    if (this.#at < this.#points.length) throw this.#refused("a ) without its (");
    return pattern;
  }

  #choice(): Pattern {
    this.#depth += 1;
    if (this.#depth > PATTERN_LIMITS.depthMax) throw this.#refused("groups lie too deep");
    const parts = [this.#sequence()];
    while (this.#taken("|")) parts.push(this.#sequence());
    this.#depth -= 1;
    const [only] = parts;
    return parts.length === 1 && only !== undefined ? only : { kind: "choice", parts };
  }

  #sequence(): Pattern {
    const parts: Pattern[] = [];
    for (let next = this.#peek(); next !== undefined && next !== "|" && next !== ")"; next = this.#peek())
      parts.push(this.#repeated(this.#atom()));
    return { kind: "sequence", parts };
  }

  #atom(): Pattern {
    const point = this.#next();
    switch (point) {
      case "(":
        return this.#group();
      case "[":
        return { kind: "set", set: this.#class() };
      case ".":
        return { kind: "set", set: negated([[LINE_FEED, LINE_FEED]]) };
      case "^":
        return { kind: "edge", edge: "start" };
      case "$":
        return { kind: "edge", edge: "end" };
      case "\\":
        return this.#escape();
      case "*":
      case "+":
      case "?":
        throw this.#refused(`nothing before ${point} to repeat`);
      default:
        return { kind: "set", set: this.#point(point.codePointAt(0) ?? 0) };
    }
  }

  #point(point: number): CharSet {
    return this.#cased([[point, point]]);
  }

  /** Of what the pattern names; never of a complement, which would take in letters that it leaves out. */
  #cased(set: CharSet): CharSet {
    return this.#ignoreCase ? foldedSet(set) : set;
  }

  #group(): Pattern {
    if (this.#taken("?") && !this.#taken(":")) {
      const isNamed = (this.#taken("P") || this.#peek() === "<") && this.#taken("<");
      if (!isNamed || this.#peek() === "=" || this.#peek() === "!")
        throw this.#refused("a (? that is no group: look-around, flags and references are not supported");
      while (this.#next() !== ">");
    }
    const pattern = this.#choice();
    if (!this.#taken(")")) throw this.#refused("a ( without its )");
    return pattern;
  }

  #escape(): Pattern {
    const point = this.#next();
    const edge = EDGES[point];
    if (edge !== undefined) return { kind: "edge", edge };
    return { kind: "set", set: this.#escaped(point) };
  }

  #escaped(point: string): CharSet {
    return CLASSES[point] ?? this.#point(this.#escapedPoint(point));
  }

  #escapedPoint(point: string): number {
    const control = CONTROLS[point];
    if (control !== undefined) return control;
    if (point === "x" || point === "u") return this.#hex(point === "x" ? 2 : 4);
    if (/[0-9A-Za-z]/.test(point)) throw this.#refused(`\\${point} is not supported`);
    return point.codePointAt(0) ?? 0;
  }

  #hex(digits: number): number {
    let text = "";
    if (this.#taken("{")) {
      for (let point = this.#next(); point !== "}"; point = this.#next()) text += point;
    } else for (let left = digits; left > 0; left -= 1) text += this.#next();
    const value = /^[0-9A-Fa-f]{1,6}$/.test(text) ? Number.parseInt(text, 16) : Number.NaN;
    if (!(value <= 0x10ffff)) throw this.#refused(`"${text}" is no code point`);
    return value;
  }

  #class(): CharSet {
    const isNegated = this.#taken("^");
    const ranges: (readonly [number, number])[] = [];
    for (let isFirst = true; isFirst || this.#peek() !== "]"; isFirst = false) {
      const low = this.#classAtom();
      const isRange = this.#peek() === "-" && ![undefined, "]"].includes(this.#points[this.#at + 1]);
      if (typeof low !== "number") ranges.push(...low);
      else if (!isRange) ranges.push(...this.#point(low));
      else {
        this.#next();
        const high = this.#classAtom();
        if (typeof high !== "number" || high < low)
          throw this.#refused("a range in [] that has no end or runs backwards");
        ranges.push(...this.#cased([[low, high]]));
      }
    }
    this.#next();
    const set = unionOf(ranges);
    return isNegated ? negated(set) : set;
  }

  /** One character, or a set that an escape names. */
  #classAtom(): number | CharSet {
    const point = this.#next();
    if (point === "[" && this.#peek() === ":") throw this.#refused("[: :] is not supported");
    if (point !== "\\") return point.codePointAt(0) ?? 0;
    const escaped = this.#next();
    if (escaped === "b") return 8;
    return CLASSES[escaped] ?? this.#escapedPoint(escaped);
  }

  #repeated(part: Pattern): Pattern {
    const bounds = this.#bounds();
    if (bounds === null) return part;
    // Lazy or not, the same lines match.
    this.#taken("?");
    if (this.#bounds() !== null) throw this.#refused("a repeat of a repeat");
    return { kind: "repeat", part, min: bounds[0], max: bounds[1] };
  }

  #bounds(): readonly [number, number | null] | null {
    if (this.#taken("*")) return [0, null];
    if (this.#taken("+")) return [1, null];
    if (this.#taken("?")) return [0, 1];
    if (this.#peek() !== "{") return null;
    const rest = this.#points.slice(this.#at, this.#at + 12).join("");
    const found = /^\{([0-9]{1,4})(?:(,)([0-9]{1,4})?)?\}/.exec(rest);
    // A brace that says no number stands for itself.
    if (found === null) return null;
    const [whole, low, comma, high] = found;
    this.#at += whole.length;
    const min = Number(low);
    const max = comma === undefined ? min : high === undefined ? null : Number(high);
    if (min > PATTERN_LIMITS.repeatMax || (max ?? 0) > PATTERN_LIMITS.repeatMax || (max ?? min) < min)
      throw this.#refused(`${whole} repeats backwards, or more than ${PATTERN_LIMITS.repeatMax} times`);
    return [min, max];
  }

  #peek(): string | undefined {
    return this.#points[this.#at];
  }

  #next(): string {
    const point = this.#points[this.#at];
    if (point === undefined) throw this.#refused("it ends too early");
    this.#at += 1;
    return point;
  }

  #taken(point: string): boolean {
    if (this.#peek() !== point) return false;
    this.#at += 1;
    return true;
  }

  #refused(state: string): Failure {
    return refused(`${state} (at character ${this.#at})`);
  }
}
