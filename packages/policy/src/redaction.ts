import { type CelValue, isList, isMap } from "./event/value.ts";

/** What stands in a stored text where a secret, or something else that must not be kept, stood. */
const MARKER = /\[(?:redacted|credential:blake3:[0-9a-f]{64})\]/i;

/** Some text in the value, at any depth, was replaced before it was stored. */
export function isRedacted(value: CelValue): boolean {
  if (typeof value === "string") return MARKER.test(value);
  if (isList(value)) return value.some(isRedacted);
  return isMap(value) && [...value].some(([key, item]) => MARKER.test(key) || isRedacted(item));
}
