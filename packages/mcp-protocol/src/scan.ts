/**
 * A checking scanner of JSON text (RFC 8259): finds where a value ends and builds nothing. Each function takes the
 * position of a first character and returns the position behind the last one; a fault is thrown as
 * Failure("parse_error").
 */
import { Failure } from "@capsem/base";
import { MCP_LIMITS } from "./limits.ts";

export const CHAR = {
  quote: 0x22,
  comma: 0x2c,
  colon: 0x3a,
  openArray: 0x5b,
  backslash: 0x5c,
  closeArray: 0x5d,
  openObject: 0x7b,
  closeObject: 0x7d,
} as const;

export function faultAt(text: string, at: number, expected: string): Failure<"parse_error"> {
  const found = at < text.length ? JSON.stringify(text.charAt(at)) : "the end";
  return new Failure("parse_error", `Cannot read JSON: ${found} at ${at}, expected ${expected}`);
}

/** Of what JSON calls whitespace. */
export function skipSpace(text: string, from: number): number {
  let at = from;
  for (;;) {
    const char = text.charCodeAt(at);
    if (char === 0x20 || char === 0x0a || char === 0x0d || char === 0x09) at += 1;
    else return at;
  }
}

/** `depth` is how many arrays and objects are around the value. */
export function skipValue(text: string, at: number, depth: number): number {
  switch (text.charCodeAt(at)) {
    case CHAR.quote:
      return skipString(text, at);
    case CHAR.openObject:
      return skipObject(text, at, depth + 1);
    case CHAR.openArray:
      return skipArray(text, at, depth + 1);
    case 0x74:
      return skipWord(text, at, "true");
    case 0x66:
      return skipWord(text, at, "false");
    case 0x6e:
      return skipWord(text, at, "null");
    default:
      return skipNumber(text, at);
  }
}

/** Behind the closing quote. */
export function skipString(text: string, from: number): number {
  if (text.charCodeAt(from) !== CHAR.quote) throw faultAt(text, from, "a string");
  let at = from + 1;
  let searchAt = at + PLAIN_CHARS_BEFORE_SEARCH;
  for (;;) {
    if (at === searchAt) {
      at = nextSpecial(text, at);
      searchAt = -1;
    }
    const char = text.charCodeAt(at);
    if (char === CHAR.quote) return at + 1;
    if (char === CHAR.backslash) {
      at = skipEscape(text, at);
      searchAt = at + PLAIN_CHARS_BEFORE_SEARCH;
    } else if (char >= 0x20) at += 1;
    else throw faultAt(text, at, "a character of a string");
  }
}

/** A search has a price of its own, and passes a long run of characters several times as fast. */
const PLAIN_CHARS_BEFORE_SEARCH = 32;

/** Where the next character is that a string cannot simply hold; the length where there is none. */
function nextSpecial(text: string, from: number): number {
  // All but what stands for itself: a quote, a backslash, and what is below the space.
  const special = /[^ !#-[\]-\uffff]/g;
  special.lastIndex = from;
  return special.test(text) ? special.lastIndex - 1 : text.length;
}

function skipEscape(text: string, from: number): number {
  switch (text.charCodeAt(from + 1)) {
    case CHAR.quote:
    case CHAR.backslash:
    case 0x2f:
    case 0x62:
    case 0x66:
    case 0x6e:
    case 0x72:
    case 0x74:
      return from + 2;
    case 0x75:
      for (let at = from + 2; at < from + 6; at += 1) {
        if (!isHex(text.charCodeAt(at))) throw faultAt(text, at, "a hexadecimal digit");
      }
      return from + 6;
    default:
      throw faultAt(text, from + 1, "an escape");
  }
}

function isHex(char: number): boolean {
  return isDigit(char) || (char >= 0x41 && char <= 0x46) || (char >= 0x61 && char <= 0x66);
}

function isDigit(char: number): boolean {
  return char >= 0x30 && char <= 0x39;
}

function skipWord(text: string, at: number, word: string): number {
  if (!text.startsWith(word, at)) throw faultAt(text, at, "a value");
  return at + word.length;
}

export function skipNumber(text: string, from: number): number {
  let at = from;
  if (text.charCodeAt(at) === 0x2d) at += 1;
  if (text.charCodeAt(at) === 0x30) at += 1;
  else at = skipDigits(text, at, at === from ? "a value" : "a digit");
  if (text.charCodeAt(at) === 0x2e) at = skipDigits(text, at + 1, "a digit");
  const char = text.charCodeAt(at);
  if (char === 0x65 || char === 0x45) {
    const sign = text.charCodeAt(at + 1);
    at = skipDigits(text, sign === 0x2b || sign === 0x2d ? at + 2 : at + 1, "a digit");
  }
  return at;
}

function skipDigits(text: string, from: number, expected: string): number {
  let at = from;
  while (isDigit(text.charCodeAt(at))) at += 1;
  if (at === from) throw faultAt(text, at, expected);
  return at;
}

export function checkDepth(depth: number, max: number): void {
  if (depth > max) throw new Failure("parse_error", `Cannot read JSON: nested deeper than ${max}`);
}

function skipObject(text: string, from: number, depth: number): number {
  checkDepth(depth, MCP_LIMITS.scanDepthMax);
  let at = skipSpace(text, from + 1);
  if (text.charCodeAt(at) === CHAR.closeObject) return at + 1;
  for (;;) {
    at = skipColon(text, skipString(text, at));
    at = skipSpace(text, skipValue(text, at, depth));
    const char = text.charCodeAt(at);
    if (char === CHAR.closeObject) return at + 1;
    if (char !== CHAR.comma) throw faultAt(text, at, '"," or "}"');
    at = skipSpace(text, at + 1);
  }
}

/** From behind a member's name to its value. */
export function skipColon(text: string, from: number): number {
  const at = skipSpace(text, from);
  if (text.charCodeAt(at) !== CHAR.colon) throw faultAt(text, at, '":"');
  return skipSpace(text, at + 1);
}

function skipArray(text: string, from: number, depth: number): number {
  checkDepth(depth, MCP_LIMITS.scanDepthMax);
  let at = skipSpace(text, from + 1);
  if (text.charCodeAt(at) === CHAR.closeArray) return at + 1;
  for (;;) {
    at = skipSpace(text, skipValue(text, at, depth));
    const char = text.charCodeAt(at);
    if (char === CHAR.closeArray) return at + 1;
    if (char !== CHAR.comma) throw faultAt(text, at, '"," or "]"');
    at = skipSpace(text, at + 1);
  }
}

/** The value of a string literal that was scanned: with its quotes, from `from` to before `to`. */
export function decodeString(text: string, from: number, to: number): string {
  const raw = text.slice(from + 1, to - 1);
  return raw.includes("\\") ? (JSON.parse(text.slice(from, to)) as string) : raw;
}

/** Tells each member of the object that starts at `from`; returns what is behind it. */
export function eachMember(
  text: string,
  from: number,
  depth: number,
  tell: (name: string, valueFrom: number, valueTo: number, nameFrom: number) => void,
): number {
  if (text.charCodeAt(from) !== CHAR.openObject) throw faultAt(text, from, "an object");
  let at = skipSpace(text, from + 1);
  if (text.charCodeAt(at) === CHAR.closeObject) return at + 1;
  for (;;) {
    const nameFrom = at;
    const nameTo = skipString(text, at);
    const valueFrom = skipColon(text, nameTo);
    const valueTo = skipValue(text, valueFrom, depth + 1);
    tell(decodeString(text, nameFrom, nameTo), valueFrom, valueTo, nameFrom);
    at = skipSpace(text, valueTo);
    const char = text.charCodeAt(at);
    if (char === CHAR.closeObject) return at + 1;
    if (char !== CHAR.comma) throw faultAt(text, at, '"," or "}"');
    at = skipSpace(text, at + 1);
  }
}

/** Nothing but whitespace may follow. */
export function checkEnd(text: string, from: number): void {
  const at = skipSpace(text, from);
  if (at !== text.length) throw faultAt(text, at, "the end");
}
