/** A value as a rule sees it: integers are BigInt, maps are Maps, so that no prototype is ever asked. */
export type CelValue = boolean | bigint | number | string | null | readonly CelValue[] | CelMap;
export type CelMap = ReadonlyMap<string, CelValue>;

export type JsonValue =
  | boolean
  | number
  | string
  | null
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue };

/** Back to JSON, as the ledger stores it. Integers of an event are safe ones. */
export function toJson(value: CelValue): JsonValue {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(toJson);
  if (isMap(value)) {
    const entries = [...value].map(([key, item]) => [key, toJson(item)] as const);
    return Object.fromEntries(entries);
  }
  return value as JsonValue;
}

export function isMap(value: CelValue): value is CelMap {
  return value instanceof Map;
}

export function isList(value: CelValue): value is readonly CelValue[] {
  return Array.isArray(value);
}

export function isNumeric(value: CelValue): value is number | bigint {
  return typeof value === "number" || typeof value === "bigint";
}

/** CEL's equality over mixed values: numbers by their value, lists and maps by their items. */
export function equal(a: CelValue, b: CelValue): boolean {
  if (a === b) return true;
  // biome-ignore lint/suspicious/noDoubleEquals: the loose operator compares an integer and a double exactly
  if (isNumeric(a) && isNumeric(b)) return a == b;
  if (isList(a) && isList(b)) {
    return a.length === b.length && a.every((item, index) => equal(item, b[index] as CelValue));
  }
  if (isMap(a) && isMap(b)) {
    if (a.size !== b.size) return false;
    for (const [key, item] of a) {
      const other = b.get(key);
      if (other === undefined || !equal(item, other)) return false;
    }
    return true;
  }
  return false;
}
