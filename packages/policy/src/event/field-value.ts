import { utf8 } from "@capsem/base";
import { POLICY_LIMITS } from "../limits.ts";
import type { FieldKind, FieldRow } from "./field-table.ts";
import { canonicalHost, canonicalIp } from "./host.ts";
import type { CelMap, CelValue } from "./value.ts";

/** A value that entered an event, and whether it was cut at a bound on the way. */
export interface Taken {
  readonly value: CelValue;
  readonly isCut: boolean;
}

/** What can be wrong with a value of a field; the words end "it is …". */
export class ValueProblem {
  readonly what: string;
  constructor(what: string) {
    this.what = what;
  }
}

const whole = (value: CelValue): Taken => ({ value, isCut: false });
const decoder = new TextDecoder("utf-8");

/** Checks one value against its row and brings it to its one form. */
export function takeValue(row: FieldRow, value: unknown): Taken | ValueProblem {
  const taken = takeKind(row.kind, value);
  if (taken instanceof ValueProblem || row.values === undefined) return taken;
  return row.values.includes(String(taken.value))
    ? taken
    : new ValueProblem(`not one of ${row.values.join(", ")}`);
}

function takeKind(kind: FieldKind, value: unknown): Taken | ValueProblem {
  switch (kind) {
    case "bool":
      return typeof value === "boolean" ? whole(value) : new ValueProblem("no boolean");
    case "int":
      return Number.isSafeInteger(value)
        ? whole(BigInt(value as number))
        : new ValueProblem("no safe integer");
    case "double":
      return typeof value === "number" && Number.isFinite(value)
        ? whole(value)
        : new ValueProblem("no finite number");
    case "body":
      return takeBody(value);
    case "texts":
      return takeTexts(value);
    case "headers":
    case "json":
      return takeMap(kind, value);
    case "jsons":
      return takeMaps(value);
    default:
      return takeText(kind, value);
  }
}

function takeText(kind: FieldKind, value: unknown): Taken | ValueProblem {
  if (typeof value !== "string") return new ValueProblem("no text");
  if (bytesOf(value) > POLICY_LIMITS.textBytesMax) {
    return new ValueProblem(`longer than ${POLICY_LIMITS.textBytesMax} bytes`);
  }
  const one = oneSpelling(kind, value);
  return one === null ? new ValueProblem(`no ${kind === "host" ? "host" : "IP address"}`) : whole(one);
}

/** The spelling in which rules see a text of this kind; null when it is none of the kind. */
export function oneSpelling(kind: FieldKind, value: string): string | null {
  switch (kind) {
    case "upper":
      return value.toUpperCase();
    case "lower":
      return value.toLowerCase();
    case "path":
      return canonicalPath(value);
    case "host":
      return canonicalHost(value);
    case "ip":
      return canonicalIp(value);
    default:
      return value;
  }
}

/** Removes `.`, `..` and double slashes; what would climb above the root stays at it. */
export function canonicalPath(path: string): string {
  const parts: string[] = [];
  const isAbsolute = path.startsWith("/");
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") parts.push(part);
    else if (parts.length > 0 && parts.at(-1) !== "..") parts.pop();
    else if (!isAbsolute) parts.push(part);
  }
  return `${isAbsolute ? "/" : ""}${parts.join("/")}`;
}

function bytesOf(text: string): number {
  // No UTF-16 unit takes more than three bytes: short text needs no encoding to be known as short.
  return text.length * 3 <= POLICY_LIMITS.textBytesMax ? text.length : utf8(text).length;
}

/** Text or bytes, cut at a whole character. */
function takeBody(value: unknown): Taken | ValueProblem {
  const max = POLICY_LIMITS.bodyBytesMax;
  if (typeof value === "string") return cutText(value, max);
  if (!(value instanceof Uint8Array)) return new ValueProblem("no text");
  return { value: decoder.decode(wholeCharacters(value, max)), isCut: value.length > max };
}

function cutText(text: string, max: number): { readonly value: string; readonly isCut: boolean } {
  if (text.length * 3 <= max) return { value: text, isCut: false };
  const bytes = utf8(text.slice(0, max + 1));
  if (bytes.length <= max) return { value: text, isCut: false };
  return { value: decoder.decode(wholeCharacters(bytes, max)), isCut: true };
}

function wholeCharacters(bytes: Uint8Array, max: number): Uint8Array {
  let end = Math.min(max, bytes.length);
  while (end > 0 && end > max - 4 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return bytes.subarray(0, end);
}

function takeTexts(value: unknown): Taken | ValueProblem {
  if (!Array.isArray(value) || !value.every((item) => typeof item === "string")) {
    return new ValueProblem("no list of texts");
  }
  const walk = new JsonWalk();
  const list = walk.list(value, 0);
  return walk.problem ?? { value: list, isCut: walk.isCut };
}

function takeMap(kind: "headers" | "json", value: unknown): Taken | ValueProblem {
  if (!isRecord(value)) return new ValueProblem("no map");
  if (kind === "headers" && !Object.values(value).every((item) => typeof item === "string")) {
    return new ValueProblem("no map of texts");
  }
  const walk = new JsonWalk();
  const map = walk.map(kind === "headers" ? byLowerName(value) : value, 0);
  return walk.problem ?? { value: map, isCut: walk.isCut };
}

/** Header names are the same in any case; what comes twice is joined as HTTP says. */
function byLowerName(headers: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const joined = new Map<string, unknown>();
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase();
    joined.set(lower, joined.has(lower) ? `${joined.get(lower)}, ${value}` : value);
  }
  return Object.fromEntries(joined);
}

function takeMaps(value: unknown): Taken | ValueProblem {
  if (!Array.isArray(value) || !value.every(isRecord)) return new ValueProblem("no list of maps");
  const walk = new JsonWalk();
  const list = walk.list(value, 0);
  return walk.problem ?? { value: list, isCut: walk.isCut };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return (
    typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array)
  );
}

/** Copies foreign JSON into values with every bound counted; what is too deep or too much is a problem. */
class JsonWalk {
  problem: ValueProblem | undefined;
  isCut = false;
  #nodes = 0;
  #bytesLeft: number = POLICY_LIMITS.listBytesMax;

  list(items: readonly unknown[], depth: number): CelValue {
    if (items.length > POLICY_LIMITS.itemsMax) this.isCut = true;
    return items.slice(0, POLICY_LIMITS.itemsMax).map((item) => this.value(item, depth + 1));
  }

  map(record: Readonly<Record<string, unknown>>, depth: number): CelMap {
    const entries = Object.entries(record);
    // Cut instead, whoever writes the map could hide a key behind others.
    if (entries.length > POLICY_LIMITS.itemsMax) this.problem ??= new ValueProblem("too large");
    const map = new Map<string, CelValue>();
    for (const [key, item] of this.problem === undefined ? entries : []) {
      if (item !== undefined) map.set(this.key(key), this.value(item, depth + 1));
    }
    return map;
  }

  private value(item: unknown, depth: number): CelValue {
    this.#nodes += 1;
    if (depth > POLICY_LIMITS.jsonDepthMax || this.#nodes > POLICY_LIMITS.jsonNodesMax) {
      this.problem ??= new ValueProblem(depth > POLICY_LIMITS.jsonDepthMax ? "too deep" : "too large");
      return null;
    }
    if (item === null || typeof item === "boolean") return item;
    if (typeof item === "string") return this.text(item);
    if (typeof item === "number" && Number.isFinite(item)) {
      return Number.isSafeInteger(item) ? BigInt(item) : item;
    }
    if (Array.isArray(item)) return this.list(item, depth);
    if (isRecord(item)) return this.map(item, depth);
    this.problem ??= new ValueProblem("not JSON");
    return null;
  }

  /** A key is a name: two long ones must not become one. */
  private key(key: string): string {
    if (key.length > POLICY_LIMITS.keptBytes) this.problem ??= new ValueProblem("a map with too long a key");
    return key;
  }

  /** Short texts stay whole whatever came before them; only long ones share what is left. */
  private text(text: string): string {
    if (text.length * 3 <= POLICY_LIMITS.keptBytes) return text;
    const { value, isCut } = cutText(text, Math.max(this.#bytesLeft, POLICY_LIMITS.keptBytes));
    this.#bytesLeft -= utf8(value).length;
    if (isCut) this.isCut = true;
    return value;
  }
}
