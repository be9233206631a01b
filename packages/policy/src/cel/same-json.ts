import { type CelValue, isList, isMap } from "../event/value.ts";
import { celLiteral, celText } from "./literal.ts";

/** Why no condition holds of exactly this value. */
export class Inexpressible {
  readonly what: string;
  constructor(what: string) {
    this.what = what;
  }
}

/** Words that CEL keeps for itself. */
const RESERVED = new Set(
  "as break const continue else false for function if import in let loop namespace null package return true var void while".split(
    " ",
  ),
);

/**
 * Conditions that together hold of the map at `place` when it is exactly `map`, and of nothing else. They never
 * fault: a rule that faults blocks, so one that allows a call must not do so for the next call of that tool. Each
 * member is therefore asked for with `has` before it is read, which also says that what is above it is a map.
 */
export function sameMap(place: string, map: ReadonlyMap<string, CelValue>): string[] | Inexpressible {
  const conditions = [`size(${place}) == ${map.size}`];
  for (const [key, value] of map) {
    const here = isName(key) ? `${place}.${key}` : indexed(place, key);
    if (here === undefined) return new Inexpressible("a key with half a character");
    const same = isMap(value) ? sameInnerMap(here, value) : sameValue(here, value);
    if (same instanceof Inexpressible) return same;
    conditions.push(...same);
  }
  return conditions;
}

function sameInnerMap(place: string, map: ReadonlyMap<string, CelValue>): string[] | Inexpressible {
  const name = [...map.keys()].find(isName);
  // Nothing asks without a fault whether a value is a map, but `has` of a key of it.
  if (name === undefined) return new Inexpressible("an inner map without a key that is a name");
  const same = sameMap(place, map);
  return same instanceof Inexpressible ? same : [`has(${place}.${name})`, ...same];
}

function sameValue(place: string, value: CelValue): string[] | Inexpressible {
  // A key whose value is null has no value for a rule.
  if (value === null) return new Inexpressible("null");
  const literal = celLiteral(value);
  if (literal !== undefined) return [`${place} == ${literal}`];
  return new Inexpressible(isList(value) ? "a list of several types or of maps" : "half a character");
}

function isName(key: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(key) && !RESERVED.has(key);
}

function indexed(place: string, key: string): string | undefined {
  const text = celText(key);
  return text === undefined ? undefined : `${place}[${text}]`;
}
