import { type CharSet, contains } from "./char-set.ts";

/**
 * Characters as few numbers: two that no set of a pattern tells apart are one symbol. Steps and states then have small
 * tables, whatever the characters are.
 */
export interface Symbols {
  readonly count: number;
  /** Whether a set, by its number, has a symbol. */
  has(set: number, symbol: number): boolean;
  of(point: number): number;
}

const TABLE_POINTS = 0x10000;

export function symbolsOf(sets: readonly CharSet[]): Symbols {
  const starts = [
    ...new Set([0, ...sets.flatMap((set) => set.flatMap(([from, to]) => [from, to + 1]))]),
  ].sort((left, right) => left - right);
  const numbers = new Map<string, number>();
  const members: boolean[][] = [];
  const symbols = starts.map((start) => {
    const isIn = sets.map((set) => contains(set, start));
    const key = isIn.map(Number).join("");
    const known = numbers.get(key);
    if (known !== undefined) return known;
    numbers.set(key, members.length);
    members.push(isIn);
    return members.length - 1;
  });
  const table = new Uint16Array(TABLE_POINTS);
  for (const [index, start] of starts.entries()) {
    if (start < TABLE_POINTS) table.fill(symbols[index] ?? 0, start, starts[index + 1] ?? TABLE_POINTS);
  }
  return {
    count: members.length,
    has: (set, symbol) => members[symbol]?.[set] === true,
    of: (point) => (point < TABLE_POINTS ? (table[point] ?? 0) : (symbols[lastBefore(starts, point)] ?? 0)),
  };
}

/** The index of the last start that is not beyond. */
function lastBefore(starts: readonly number[], point: number): number {
  let [low, high] = [0, starts.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((starts[middle] ?? 0) <= point) low = middle;
    else high = middle - 1;
  }
  return low;
}
