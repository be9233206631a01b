/** A set of code points: sorted ranges, both ends included, that do not touch. */
export type CharSet = readonly (readonly [number, number])[];

const CODE_POINT_MAX = 0x10ffff;
/** Beyond it only scripts that nobody writes have two cases. */
const CASED_MAX = 0x1ffff;

export const DIGITS: CharSet = [[0x30, 0x39]];
export const WORD: CharSet = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
];
export const SPACE: CharSet = [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0x85, 0x85],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];
export const ANY: CharSet = [[0, CODE_POINT_MAX]];

export function unionOf(ranges: CharSet): CharSet {
  const sorted = [...ranges].sort(([left], [right]) => left - right);
  const merged: [number, number][] = [];
  for (const [from, to] of sorted) {
    const last = merged.at(-1);
    if (last !== undefined && from <= last[1] + 1) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

export function negated(set: CharSet): CharSet {
  const rest: [number, number][] = [];
  let next = 0;
  for (const [from, to] of set) {
    if (from > next) rest.push([next, from - 1]);
    next = to + 1;
  }
  if (next <= CODE_POINT_MAX) rest.push([next, CODE_POINT_MAX]);
  return rest;
}

export function contains(set: CharSet, point: number): boolean {
  let [low, high] = [0, set.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    const [from, to] = set[middle] ?? [0, -1];
    if (point < from) high = middle - 1;
    else if (point > to) low = middle + 1;
    else return true;
  }
  return false;
}

/** With each character that has two cases, the other one. */
export function foldedSet(set: CharSet): CharSet {
  const added = casePairs().flatMap(([one, other]): [number, number][] => {
    const hasOne = contains(set, one);
    if (hasOne === contains(set, other)) return [];
    return hasOne ? [[other, other]] : [[one, one]];
  });
  return added.length === 0 ? set : unionOf([...set, ...added]);
}

let pairs: readonly (readonly [number, number])[] | undefined;

/** Made at the first use: some ten milliseconds. */
function casePairs(): readonly (readonly [number, number])[] {
  if (pairs !== undefined) return pairs;
  const found: [number, number][] = [];
  for (let point = 0x41; point <= CASED_MAX; point += 1) {
    const text = String.fromCodePoint(point);
    for (const other of new Set([text.toLowerCase(), text.toUpperCase()])) {
      const otherPoint = other.codePointAt(0) ?? point;
      // One that becomes two letters has no other case of its own.
      if (otherPoint !== point && other.length === String.fromCodePoint(otherPoint).length)
        found.push([point, otherPoint]);
    }
  }
  pairs = found;
  return found;
}
