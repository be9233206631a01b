import { Failure } from "@capsem/base";
import { MCP_LIMITS } from "./limits.ts";
import {
  CHAR,
  checkDepth,
  checkEnd,
  decodeString,
  faultAt,
  skipColon,
  skipNumber,
  skipSpace,
  skipString,
  skipValue,
} from "./scan.ts";

export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue };
export type JsonObject = { readonly [key: string]: JsonValue };

/**
 * Parses what a decision is made of, so that whoever parses it again sees the same. Throws Failure("parse_error") where it
 * is no JSON, and Failure("invalid_request") for what two parsers may read differently: a name twice in one object
 * (however it is escaped), an integer beyond ±(2^53 − 1), a number that is none (1e999), nesting beyond 64.
 */
export function strictJson(text: string): JsonValue {
  checkEnd(text, checkValue(text, skipSpace(text, 0), 0));
  return JSON.parse(text) as JsonValue;
}

/** The same of what must be an object. */
export function strictObject(text: string): JsonObject {
  const value = strictJson(text);
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as JsonObject;
  throw new Failure("invalid_request", "Cannot read JSON: it is not an object");
}

function checkValue(text: string, at: number, depth: number): number {
  const char = text.charCodeAt(at);
  if (char === CHAR.openObject) return checkObject(text, at, depth + 1);
  if (char === CHAR.openArray) return checkArray(text, at, depth + 1);
  if (char === 0x2d || (char >= 0x30 && char <= 0x39)) return checkNumber(text, at);
  return skipValue(text, at, depth);
}

function checkObject(text: string, from: number, depth: number): number {
  checkStrictDepth(depth);
  let at = skipSpace(text, from + 1);
  if (text.charCodeAt(at) === CHAR.closeObject) return at + 1;
  const names = new Names();
  for (;;) {
    const nameTo = skipString(text, at);
    names.add(decodeString(text, at, nameTo));
    at = skipSpace(text, checkValue(text, skipColon(text, nameTo), depth));
    const char = text.charCodeAt(at);
    if (char === CHAR.closeObject) return at + 1;
    if (char !== CHAR.comma) throw faultAt(text, at, '"," or "}"');
    at = skipSpace(text, at + 1);
  }
}

function checkArray(text: string, from: number, depth: number): number {
  checkStrictDepth(depth);
  let at = skipSpace(text, from + 1);
  if (text.charCodeAt(at) === CHAR.closeArray) return at + 1;
  for (;;) {
    at = skipSpace(text, checkValue(text, at, depth));
    const char = text.charCodeAt(at);
    if (char === CHAR.closeArray) return at + 1;
    if (char !== CHAR.comma) throw faultAt(text, at, '"," or "]"');
    at = skipSpace(text, at + 1);
  }
}

function checkNumber(text: string, from: number): number {
  const to = skipNumber(text, from);
  // What has fewer digits than the largest safe integer, with its sign, cannot be above it.
  if (to - from < 16 && !hasExponent(text, from, to)) return to;
  const literal = text.slice(from, to);
  const value = Number(literal);
  if (!Number.isFinite(value)) throw refused(`the number ${shown(literal)} has no value`);
  if (/^-?[0-9]+$/.test(literal) && !Number.isSafeInteger(value)) {
    throw refused(`the integer ${shown(literal)} is beyond 2^53`);
  }
  return to;
}

function hasExponent(text: string, from: number, to: number): boolean {
  for (let at = from; at < to; at += 1) {
    if ((text.charCodeAt(at) | 0x20) === 0x65) return true;
  }
  return false;
}

function checkStrictDepth(depth: number): void {
  if (depth > MCP_LIMITS.strictDepthMax) {
    throw refused(`it is nested deeper than ${MCP_LIMITS.strictDepthMax}`);
  }
  checkDepth(depth, MCP_LIMITS.scanDepthMax);
}

/** The names of one object. Most have few, for which a list is faster than a set. */
class Names {
  readonly #few: string[] = [];
  #many: Set<string> | undefined;

  add(name: string): void {
    if (this.#many === undefined) {
      if (this.#few.includes(name)) throw twice(name);
      this.#few.push(name);
      if (this.#few.length > 8) this.#many = new Set(this.#few);
      return;
    }
    if (this.#many.has(name)) throw twice(name);
    this.#many.add(name);
    if (this.#many.size > MCP_LIMITS.strictMembersMax) throw refused("an object has too many members");
  }
}

function twice(name: string): Failure<"invalid_request"> {
  return refused(`the name ${JSON.stringify(shown(name))} stands twice in one object`);
}

function refused(reason: string): Failure<"invalid_request"> {
  return new Failure("invalid_request", `Cannot read JSON: ${reason}`);
}

function shown(text: string): string {
  return text.length > 64 ? `${text.slice(0, 64)}…` : text;
}
