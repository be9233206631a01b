/** An event's fields, and the values of these. Looking everywhere would be a walk for each level of what a guest has nested. */
const DEPTH_LOOKED_AT = 2;

/** JSON with its keys in order and no space: one text for one value. What is undefined is not there. */
export function canonicalJson(value: unknown): string {
  return textOf(value, 0);
}

function textOf(value: unknown, depth: number): string {
  // Whoever wrote it may have kept the order: then it is written at once.
  if (typeof value !== "object" || value === null || (depth <= DEPTH_LOOKED_AT && isInOrder(value)))
    return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => textOf(item, depth + 1)).join(",")}]`;
  const record = value as Readonly<Record<string, unknown>>;
  const parts: string[] = [];
  for (const key of Object.keys(record).sort()) {
    if (record[key] !== undefined) parts.push(`${JSON.stringify(key)}:${textOf(record[key], depth + 1)}`);
  }
  return `{${parts.join(",")}}`;
}

function isInOrder(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  if (Array.isArray(value)) return value.every(isInOrder);
  const record = value as Readonly<Record<string, unknown>>;
  let before = "";
  for (const key of Object.keys(record)) {
    if (key < before || !isInOrder(record[key])) return false;
    before = key;
  }
  return true;
}
