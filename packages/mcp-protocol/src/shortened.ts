/**
 * JSON in UTF-8 with its long string literals cut short: where members begin and end, and what they are called, is found
 * in what is left, and a payload of megabytes is never made into a text for it.
 */

export interface Shortened {
  /** The same JSON, but for what was cut. */
  readonly bytes: Uint8Array;
  /** Where a byte of `bytes` stands in the whole; of a first byte of a value, or of what follows one. */
  placeOf(at: number): number;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const LOWER_U = 0x75;

/** Within the literal that begins at `from`, `removed` bytes from `at` on. */
interface Cut {
  readonly at: number;
  readonly removed: number;
}

/**
 * Of each literal that is longer and no name, `charsKept` UTF-16 units stay or a few more. What is cut was checked; what
 * stays was not. Null: nothing is long, or a literal is none, which whoever reads the whole will find.
 */
export function shortened(json: Uint8Array, charsKept: number): Shortened | null {
  const cuts: Cut[] = [];
  for (let at = json.indexOf(QUOTE); at >= 0; ) {
    const { end, cutAt } = literalAt(json, at, charsKept);
    if (end < 0) return null;
    if (end - 1 > cutAt && !isName(json, end)) cuts.push({ at: cutAt, removed: end - 1 - cutAt });
    at = json.indexOf(QUOTE, end);
  }
  if (cuts.length === 0) return null;
  const parts: Uint8Array[] = [];
  let from = 0;
  for (const { at, removed } of cuts) {
    parts.push(json.subarray(from, at));
    from = at + removed;
  }
  parts.push(json.subarray(from));
  return { bytes: Buffer.concat(parts), placeOf: (at) => placeOf(at, cuts) };
}

/** Behind its closing quote, and where it may be cut; −1: it is none. */
function literalAt(json: Uint8Array, from: number, charsKept: number): { end: number; cutAt: number } {
  let units = 0;
  let cutAt = json.length;
  for (let at = from + 1; at < json.length; ) {
    const byte = json[at] ?? 0;
    // A later byte of a character is no place to cut.
    if (units < charsKept) units += (byte & 0xc0) === 0x80 ? 0 : 1;
    else if (cutAt === json.length && (byte & 0xc0) !== 0x80) cutAt = at;
    if (byte === QUOTE) return { end: at + 1, cutAt };
    if (byte < 0x20) break;
    at = byte === BACKSLASH ? behindEscape(json, at) : at + 1;
    if (at < 0) break;
  }
  return { end: -1, cutAt };
}

function behindEscape(json: Uint8Array, at: number): number {
  const char = json[at + 1] ?? 0;
  if (char !== LOWER_U) return ESCAPED.includes(char) ? at + 2 : -1;
  for (let digit = at + 2; digit < at + 6; digit += 1) if (!HEX.includes(json[digit] ?? 0)) return -1;
  return at + 6;
}

const ESCAPED: Uint8Array = Buffer.from('"\\/bfnrt');
const HEX: Uint8Array = Buffer.from("0123456789abcdefABCDEF");

function isName(json: Uint8Array, end: number): boolean {
  let at = end;
  while (json[at] === 0x20 || json[at] === 0x0a || json[at] === 0x0d || json[at] === 0x09) at += 1;
  return json[at] === COLON;
}

function placeOf(at: number, cuts: readonly Cut[]): number {
  let place = at;
  for (const cut of cuts) {
    if (cut.at > place) break;
    place += cut.removed;
  }
  return place;
}
