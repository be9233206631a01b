import { PATTERN_LIMITS } from "../limits.ts";
import type { Edge } from "./parse.ts";
import { parsePattern } from "./parse.ts";
import { compileProgram, type Program } from "./program.ts";
import { type Symbols, symbolsOf } from "./symbols.ts";

/** What came before, as edges ask for it. */
type Before = "nothing" | "word" | "other";

interface State {
  /** Steps that are reached, in order; edges behind them are not judged yet, for that needs the next character. */
  readonly steps: readonly number[];
  readonly before: Before;
  /** By the next symbol, the end being the last: where it leads, made when it is first asked for. */
  readonly next: (State | "match" | undefined)[];
}

/** The set of words is the first of each program. */
const WORD_SET = 0;

/**
 * Whether a pattern is found in a line. Every path through the pattern is followed at once, so a character costs at most
 * as much as the pattern is long, whatever the pattern is; sets of paths that were seen before cost one look.
 */
export class Matcher {
  readonly #program: Program;
  readonly #symbols: Symbols;
  #states = new Map<string, State>();
  #first: State;

  /** Throws "invalid_input". */
  constructor(pattern: string, ignoreCase: boolean) {
    this.#program = compileProgram(parsePattern(pattern, ignoreCase));
    this.#symbols = symbolsOf(this.#program.sets);
    this.#first = this.#stateOf([], "nothing");
  }

  /** Where the match that ends first ends, or −1. A line has no line feed. */
  search(line: string): number {
    let state = this.#first;
    for (let at = 0; at < line.length; at += 1) {
      const point = line.codePointAt(at) ?? 0;
      const next = this.#next(state, this.#symbols.of(point));
      if (next === "match") return at;
      state = next;
      if (point > 0xffff) at += 1;
    }
    return this.#next(state, this.#symbols.count) === "match" ? line.length : -1;
  }

  #next(state: State, symbol: number): State | "match" {
    const known = state.next[symbol];
    if (known !== undefined) return known;
    const found = this.#step(state, symbol);
    state.next[symbol] = found;
    return found;
  }

  /** One character further, or past the end, from each step of a state. */
  #step({ steps, before }: State, symbol: number): State | "match" {
    const isEnd = symbol === this.#symbols.count;
    const isWord = !isEnd && this.#symbols.has(WORD_SET, symbol);
    const holds = (edge: Edge) => edgeHolds(edge, before, isEnd, isWord);
    const seen = new Set<number>();
    const reached = new Set<number>();
    // A match may begin at each character.
    const open = [...steps, this.#program.start];
    for (let number = open.pop(); number !== undefined; number = open.pop()) {
      const step = this.#program.steps[number];
      if (step === undefined || seen.has(number)) continue;
      seen.add(number);
      if (step.kind === "match") return "match";
      if (step.kind === "split") open.push(step.next, step.other);
      else if (step.kind === "edge") {
        if (holds(step.edge)) open.push(step.next);
      } else if (!isEnd && this.#symbols.has(step.set, symbol)) reached.add(step.next);
    }
    return this.#stateOf(
      [...reached].sort((left, right) => left - right),
      isWord ? "word" : "other",
    );
  }

  #stateOf(steps: readonly number[], before: Before): State {
    const key = `${before} ${steps.join()}`;
    const known = this.#states.get(key);
    if (known !== undefined) return known;
    if (this.#states.size >= PATTERN_LIMITS.statesMax) {
      // Those in use lead on to new ones.
      this.#states = new Map();
      this.#first = { steps: [], before: "nothing", next: [] };
    }
    const state: State = { steps, before, next: [] };
    this.#states.set(key, state);
    return state;
  }
}

function edgeHolds(edge: Edge, before: Before, isEnd: boolean, isWord: boolean): boolean {
  switch (edge) {
    case "start":
      return before === "nothing";
    case "end":
      return isEnd;
    case "word":
      return (before === "word") !== isWord;
    case "not word":
      return (before === "word") === isWord;
  }
}
