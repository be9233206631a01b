import type { Meter } from "./meter.ts";

/** One instruction of a compiled pattern, as `re2js` makes them; number 0 fails. */
export interface Instruction {
  readonly op: number;
  readonly out: number;
  readonly arg: number;
  matchRune(character: number): boolean;
}

export interface Program {
  readonly instructions: readonly Instruction[];
  readonly start: number;
  /** Where the character classes of the pattern begin and end, ascending: between two of these all are alike. */
  readonly bounds: Int32Array;
}

/** The library's numbers of instructions. From the last on they read a character. */
const OP = {
  alt: 1,
  altMatch: 2,
  capture: 3,
  emptyWidth: 4,
  match: 6,
  nop: 7,
  rune: 8,
  runeLast: 11,
} as const;
/** What an instruction without width asks of its place, as bits. */
const AT = { lineBegin: 1, lineEnd: 2, textBegin: 4, textEnd: 8, wordEdge: 16, noWordEdge: 32 } as const;

/** What stood before a place. */
const BEFORE = { nothing: 0, lineBreak: 1, wordCharacter: 2, other: 3 } as const;
const NO_CHARACTER = -1;
const LINE_BREAK = 10;
/** The class of the end of the text; those of characters follow. */
const END = 0;
const LATIN = 256;

/**
 * Where the matching of a text has come to: instructions that are still to be followed, besides those that begin at
 * every character. One that is remembered knows its next steps, by the class of the next character.
 */
interface State {
  readonly pending: readonly number[];
  readonly before: number;
  readonly next: Uint16Array | null;
}

/** From one state over one character. */
interface Step {
  readonly isMatch: boolean;
  readonly to: State;
  /** What it takes without being remembered. */
  readonly steps: number;
}

/** What begins at a place: the same for all places between the same characters. */
interface Beginning {
  readonly isMatch: boolean;
  readonly outs: readonly number[];
  readonly visited: number;
}

/**
 * Finds a pattern anywhere in a text, in steps that follow from pattern and text alone: instructions that are visited,
 * and characters. Steps that were taken before are remembered, so most texts take a look into a table for each character,
 * but what is counted is the same without. A library's own engine counts nothing, and its worst case, for what its own
 * memory does not hold, is ten times dearer.
 */
export class Matcher {
  readonly #instructions: readonly Instruction[];
  readonly #start: number;
  readonly #bounds: Int32Array;
  readonly #latinClasses = new Uint16Array(LATIN);
  /** Classes up to this one hold the first 256 characters, and the end: steps over them are remembered. */
  readonly #nearLast: number;
  readonly #states = new Map<string, State>();
  readonly #steps: Step[] = [];
  readonly #beginnings = new Map<number, Beginning>();
  readonly #stack: Int32Array;
  /** When an instruction was last visited, and last made pending. */
  readonly #visitedAt: Uint32Array;
  readonly #pendingAt: Uint32Array;
  #visit = 0;
  #isFull = false;
  #first: State;

  constructor({ instructions, start, bounds }: Program) {
    this.#instructions = instructions;
    this.#start = start;
    this.#bounds = bounds;
    for (let unit = 0; unit < LATIN; unit += 1) this.#latinClasses[unit] = this.#search(unit);
    this.#nearLast = this.#latinClasses[LATIN - 1] ?? END;
    this.#stack = new Int32Array(2 * instructions.length + 2);
    this.#visitedAt = new Uint32Array(instructions.length);
    this.#pendingAt = new Uint32Array(instructions.length);
    this.#first = this.#stateOf([], BEFORE.nothing);
  }

  /** Undefined where the meter has too little left; then nothing is left. */
  test(text: string, meter: Meter): boolean | undefined {
    const found = this.#run(text, meter);
    // Whoever filled the memory with what nobody else needs must not leave it so.
    if (this.#isFull) this.#forget();
    return found;
  }

  #run(text: string, meter: Meter): boolean | undefined {
    const [classes, steps, nearLast] = [this.#latinClasses, this.#steps, this.#nearLast];
    let state = this.#first;
    let { left } = meter;
    for (let at = 0; ; at += 1) {
      let character = NO_CHARACTER;
      let charClass: number = END;
      if (at < text.length) {
        character = text.charCodeAt(at);
        if (character < LATIN) charClass = classes[character] ?? END;
        else {
          character = text.codePointAt(at) ?? character;
          if (character > 0xffff) at += 1;
          charClass = this.#search(character);
        }
      }
      const known = state.next === null || charClass > nearLast ? 0 : (state.next[charClass] ?? 0);
      const step = known === 0 ? this.#step(state, charClass, character) : (steps[known - 1] as Step);
      left -= step.steps;
      if (left < 0 || step.isMatch || character === NO_CHARACTER) {
        meter.left = left;
        return left < 0 ? undefined : step.isMatch;
      }
      state = step.to;
    }
  }

  /** The class of a character: one more than the bounds that it lies behind. */
  #search(character: number): number {
    let [low, high] = [0, this.#bounds.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#bounds[middle] ?? 0) <= character) low = middle + 1;
      else high = middle;
    }
    return low + 1;
  }

  #step(state: State, charClass: number, character: number): Step {
    const isNear = charClass <= this.#nearLast;
    const begin = this.#beginning(state.before, charClass, character);
    const visit = this.#nextVisit();
    const outs: number[] = [];
    const visited = this.#visitAll(state.pending, flagsAt(state.before, character), character, outs);
    for (const out of begin.outs) {
      if (this.#pendingAt[out] === visit) continue;
      this.#pendingAt[out] = visit;
      outs.push(out);
    }
    const step: Step = {
      isMatch: begin.isMatch || visited < 0,
      to: this.#stateOf(outs, beforeNext(character)),
      steps: 1 + Math.abs(visited) + (isNear ? begin.outs.length : begin.visited),
    };
    if (isNear && state.next !== null && this.#steps.length < this.#stepsMax) {
      state.next[charClass] = this.#steps.push(step);
    } else if (isNear) this.#isFull = true;
    return step;
  }

  #beginning(before: number, charClass: number, character: number): Beginning {
    const key = before * (this.#nearLast + 1) + charClass;
    const isNear = charClass <= this.#nearLast;
    const known = isNear ? this.#beginnings.get(key) : undefined;
    if (known !== undefined) return known;
    this.#nextVisit();
    const outs: number[] = [];
    const visited = this.#visitAll([this.#start], flagsAt(before, character), character, outs);
    const made = { isMatch: visited < 0, outs, visited: Math.abs(visited) };
    if (isNear) this.#beginnings.set(key, made);
    return made;
  }

  #nextVisit(): number {
    this.#visit += 1;
    if (this.#visit === 0xffff_ffff) {
      this.#visit = 1;
      this.#visitedAt.fill(0);
      this.#pendingAt.fill(0);
    }
    return this.#visit;
  }

  /**
   * Follows instructions as far as they need no character, and those that take this one into `outs`, each once. Gives
   * how many were visited; below zero when one says that the pattern was found.
   */
  #visitAll(from: readonly number[], flags: number, character: number, outs: number[]): number {
    const [stack, visit, instructions] = [this.#stack, this.#visit, this.#instructions];
    const [visitedAt, pendingAt] = [this.#visitedAt, this.#pendingAt];
    let visited = 0;
    let isMatch = false;
    for (const first of from) {
      let depth = 0;
      stack[depth++] = first;
      while (depth > 0) {
        const at = stack[--depth] ?? 0;
        const instruction = instructions[at];
        if (at === 0 || instruction === undefined || visitedAt[at] === visit) continue;
        visitedAt[at] = visit;
        visited += 1;
        const { op, out, arg } = instruction;
        if (op >= OP.rune) {
          if (character === NO_CHARACTER || pendingAt[out] === visit) continue;
          if (!instruction.matchRune(character)) continue;
          pendingAt[out] = visit;
          outs.push(out);
        } else if (op === OP.match) isMatch = true;
        else if (op === OP.alt || op === OP.altMatch) {
          stack[depth++] = arg;
          stack[depth++] = out;
        } else if (op === OP.nop || op === OP.capture) stack[depth++] = out;
        else if (op === OP.emptyWidth && (arg & ~flags) === 0) stack[depth++] = out;
      }
    }
    return isMatch ? -Math.max(1, visited) : visited;
  }

  get #stepsMax(): number {
    return Math.max(STEPS_KEPT_LEAST, STEPS_KEPT_PER_INSTRUCTION * this.#instructions.length);
  }

  #stateOf(pending: readonly number[], before: number): State {
    // Where nothing is pending, most texts come back to again and again.
    const isIdle = pending.length === 0;
    if (this.#isFull && !isIdle) return { pending, before, next: null };
    const key = this.#keyOf(pending, before);
    const known = this.#states.get(key);
    if (known !== undefined) return known;
    if (!isIdle && this.#states.size >= Math.max(STATES_KEPT_LEAST, this.#instructions.length)) {
      this.#isFull = true;
      return { pending, before, next: null };
    }
    const state = { pending, before, next: new Uint16Array(this.#nearLast + 1) };
    this.#states.set(key, state);
    return state;
  }

  /** The same instructions in another order are the same state. */
  #keyOf(pending: readonly number[], before: number): string {
    const words: number[] = new Array(1 + (this.#instructions.length >> 4)).fill(0);
    for (const at of pending) words[at >> 4] = (words[at >> 4] ?? 0) | (1 << (at & 15));
    return String.fromCharCode(before, ...words);
  }

  #forget(): void {
    this.#states.clear();
    this.#steps.length = 0;
    this.#isFull = false;
    this.#first = this.#stateOf([], BEFORE.nothing);
  }
}

/** About 60 bytes a step: all patterns that rules may have together stay below 100 MB, whatever texts come. */
const STEPS_KEPT_PER_INSTRUCTION = 8;
const STEPS_KEPT_LEAST = 512;
const STATES_KEPT_LEAST = 32;

function flagsAt(before: number, character: number): number {
  let flags = 0;
  if (before === BEFORE.nothing) flags |= AT.textBegin | AT.lineBegin;
  else if (before === BEFORE.lineBreak) flags |= AT.lineBegin;
  if (character === NO_CHARACTER) flags |= AT.textEnd | AT.lineEnd;
  else if (character === LINE_BREAK) flags |= AT.lineEnd;
  const isEdge = (before === BEFORE.wordCharacter) !== isWordCharacter(character);
  return flags | (isEdge ? AT.wordEdge : AT.noWordEdge);
}

function beforeNext(character: number): number {
  if (character === LINE_BREAK) return BEFORE.lineBreak;
  return isWordCharacter(character) ? BEFORE.wordCharacter : BEFORE.other;
}

/** As RE2 has it: letters and digits of ASCII, and the underscore. */
function isWordCharacter(character: number): boolean {
  const isLetter = (character >= 97 && character <= 122) || (character >= 65 && character <= 90);
  return isLetter || (character >= 48 && character <= 57) || character === 95;
}
