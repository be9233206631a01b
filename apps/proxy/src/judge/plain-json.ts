import { Failure } from "@capsem/base";
import { type JsonValue, strictObject } from "@capsem/mcp-protocol";

/** A name that our own messages cannot carry, and that does harm in programs that take objects for maps. */
const FORBIDDEN = "__proto__";

/**
 * An object that two readers cannot take for different ones, as `strictObject`; nor does any object in it have the name
 * `__proto__`. Throws Failure("parse_error" | "invalid_request").
 */
export function plainObject(text: string): { readonly [key: string]: JsonValue } {
  const value = strictObject(text);
  // Where neither stands in the text, no name can be it.
  if ((text.includes(FORBIDDEN) || text.includes("\\u")) && hasForbidden(value)) {
    throw new Failure("invalid_request", `Cannot read JSON: the name "${FORBIDDEN}" is not taken`);
  }
  return value;
}

function hasForbidden(value: JsonValue): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (Array.isArray(value)) return value.some(hasForbidden);
  if (Object.hasOwn(value, FORBIDDEN)) return true;
  return Object.values(value).some(hasForbidden);
}
