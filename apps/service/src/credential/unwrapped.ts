/** A text without its line ends, and where what is left of it stood. */
export interface Unwrapped {
  readonly text: string;
  /** Where the character at this place of `text` stood. */
  origin(at: number): number;
  /** Whether a line ended between the first of these characters and the last. */
  isWrapped(start: number, end: number): boolean;
}

const TAB = 9;
const SPACE = 32;
const BACKSLASH = 92;
const LINE_END = /[\r\n]|\\[rn]|%0[aAdD]/g;

/**
 * Programs break what they encode into lines, of any length: base64, PEM, a block in YAML. A line end is a newline, with
 * or without a carriage return, as it is or as JSON (in JSON) or a URL writes it; the space that the next line begins
 * with belongs to it. Null for a text that has none. With `isCut`, half a line end at the text's own end is one too.
 */
export function unwrapped(text: string, isCut = false): Unwrapped | null {
  const end = isCut ? endWithoutHalf(text) : text.length;
  /** Where each line begins, in the text that is left and in the one that was given. */
  const begins: number[] = [];
  const stood: number[] = [];
  let left = "";
  let from = 0;
  for (const found of text.matchAll(LINE_END)) {
    // Within the space that went with an earlier one, or the half of one at the end.
    if (found.index < from || found.index >= end) continue;
    left += text.slice(from, beforeBackslashes(text, found.index, from));
    from = afterSpace(text, found.index + found[0].length);
    // Of line ends that follow one another, the last says where the line stood.
    if (begins.at(-1) === left.length) stood[stood.length - 1] = from;
    else {
      begins.push(left.length);
      stood.push(from);
    }
  }
  if (begins.length === 0 && end === text.length) return null;
  return new View(left + text.slice(from, Math.max(from, end)), begins, stood);
}

class View implements Unwrapped {
  readonly text: string;
  readonly #begins: readonly number[];
  readonly #stood: readonly number[];

  constructor(text: string, begins: readonly number[], stood: readonly number[]) {
    this.text = text;
    this.#begins = begins;
    this.#stood = stood;
  }

  origin(at: number): number {
    const line = this.#lineOf(at);
    return line < 0 ? at : at - (this.#begins[line] ?? 0) + (this.#stood[line] ?? 0);
  }

  isWrapped(start: number, end: number): boolean {
    return this.#lineOf(start) !== this.#lineOf(end - 1);
  }

  /** The last line that begins at or before it; -1 for the first one of all. */
  #lineOf(at: number): number {
    let [low, high] = [0, this.#begins.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#begins[middle] ?? 0) <= at) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}

/** JSON in JSON has several of them, and a shell one before the line end itself. */
function beforeBackslashes(text: string, at: number, from: number): number {
  let start = at;
  while (start > from && text.charCodeAt(start - 1) === BACKSLASH) start -= 1;
  return start;
}

function afterSpace(text: string, at: number): number {
  let start = at;
  for (; start < text.length; start += 1) {
    const sign = text.charCodeAt(start);
    if (sign !== SPACE && sign !== TAB) break;
  }
  return start;
}

function endWithoutHalf(text: string): number {
  if (text.endsWith("%0")) return text.length - 2;
  if (text.endsWith("%")) return text.length - 1;
  return beforeBackslashes(text, text.length, 0);
}
