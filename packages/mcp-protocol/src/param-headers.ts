/** Arguments of a tool that HTTP headers repeat (2026-07-28, "x-mcp-header"): whoever is on the way need not read bodies. */
import { MCP_LIMITS } from "./limits.ts";
import { memberOf } from "./raw-members.ts";

export interface ParamHeader {
  readonly name: string;
  readonly path: readonly string[];
}

/** What the name of such a header begins with, in lower case. */
export const PARAM_HEADER_PREFIX = "mcp-param-";

const KEY = "x-mcp-header";
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}$/;
const TYPES: ReadonlySet<unknown> = new Set(["string", "integer", "boolean"]);

/** What one tool's definition says of headers; null where it says what it must not, and the tool is not to be used. */
export function paramHeaders(definitionText: string): readonly ParamHeader[] | null {
  if (!definitionText.includes(KEY)) return [];
  const schemaText = memberOf(definitionText, "inputSchema");
  if (schemaText === undefined || !schemaText.includes(KEY)) return [];
  const found: ParamHeader[] = [];
  return visit(JSON.parse(schemaText), [], true, found) ? found : null;
}

/** False: there is a header where none may be. Only a chain of `properties` leads to one. */
function visit(node: unknown, path: readonly string[], isReachable: boolean, found: ParamHeader[]): boolean {
  if (path.length > MCP_LIMITS.strictDepthMax) return false;
  if (Array.isArray(node)) return node.every((item) => visit(item, [...path, ""], false, found));
  if (typeof node !== "object" || node === null) return true;
  const schema = node as Readonly<Record<string, unknown>>;
  if (Object.hasOwn(schema, KEY) && !(isReachable && take(schema, path, found))) return false;
  return Object.entries(schema).every(([key, value]) => {
    if (key === KEY || DATA.has(key)) return true;
    if (!BY_NAME.has(key) || typeof value !== "object" || value === null) {
      return visit(value, [...path, key], false, found);
    }
    const leadsOn = isReachable && key === "properties";
    return Object.entries(value).every(([name, inner]) => visit(inner, [...path, name], leadsOn, found));
  });
}

/** Keywords whose values have schemas by names of any kind. */
const BY_NAME: ReadonlySet<string> = new Set([
  "properties",
  "patternProperties",
  "dependentSchemas",
  "$defs",
  "definitions",
]);

/** Keywords whose values are data, and no schemas. */
const DATA: ReadonlySet<string> = new Set(["default", "examples", "enum", "const", "description", "title"]);

function take(
  schema: Readonly<Record<string, unknown>>,
  path: readonly string[],
  found: ParamHeader[],
): boolean {
  const name = schema[KEY];
  if (path.length === 0 || typeof name !== "string" || !TOKEN.test(name) || !TYPES.has(schema.type))
    return false;
  const lower = name.toLowerCase();
  if (found.some((other) => other.name.toLowerCase() === lower)) return false;
  found.push({ name, path });
  return true;
}

/** The headers of one call. An argument that is absent, null or no plain value has none. */
export function headersOfCall(
  declared: readonly ParamHeader[],
  argumentsText: string | undefined,
): [name: string, value: string][] {
  if (declared.length === 0 || argumentsText === undefined) return [];
  const all: unknown = JSON.parse(argumentsText);
  return declared.flatMap(({ name, path }): [string, string][] => {
    const value = plainText(valueAt(all, path));
    return value === null ? [] : [[`${PARAM_HEADER_PREFIX}${name.toLowerCase()}`, headerValue(value)]];
  });
}

/**
 * What is wrong with the headers that came with a call, by its arguments; null: nothing. `sent` has the values of headers
 * by their names in lower case. A header that the tool does not declare is not looked at.
 */
export function headersProblem(
  declared: readonly ParamHeader[],
  args: unknown,
  sent: ReadonlyMap<string, string>,
): string | null {
  for (const { name, path } of declared) {
    const header = sent.get(`${PARAM_HEADER_PREFIX}${name.toLowerCase()}`);
    const problem = problemOf(header, valueAt(args, path));
    if (problem !== null) return `Mcp-Param-${name} ${problem}`;
  }
  return null;
}

function problemOf(header: string | undefined, value: unknown): string | null {
  const said = plainText(value);
  if (header === undefined) return said === null ? null : "is missing, and the arguments have it";
  const decoded = decodeHeader(header);
  if (decoded === undefined) return "is badly encoded";
  if (said === null) return "is there, and the arguments have no plain value for it";
  // Numbers are compared as such: 7.0 is 7.
  const isSame = decoded === said || (/^-?[0-9]{1,16}\.0{1,16}$/.test(decoded) && Number(decoded) === value);
  return isSame ? null : "says other than the arguments";
}

function valueAt(root: unknown, path: readonly string[]): unknown {
  let node = root;
  for (const name of path) {
    if (typeof node !== "object" || node === null || !Object.hasOwn(node, name)) return undefined;
    node = (node as Readonly<Record<string, unknown>>)[name];
  }
  return node;
}

function plainText(value: unknown): string | null {
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return String(value);
  return typeof value === "number" && Number.isSafeInteger(value) ? String(value) : null;
}

const MARK = "=?base64?";
const MARK_END = "?=";

/** As it is where a header can hold it; else in Base64 between the marks that the specification gives. */
export function headerValue(text: string): string {
  const isPlain = /^[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?$/.test(text);
  const looksEncoded = text.startsWith(MARK) && text.endsWith(MARK_END);
  return isPlain && !looksEncoded
    ? text
    : `${MARK}${Buffer.from(text, "utf8").toString("base64")}${MARK_END}`;
}

/** What a header says, without the space around it; undefined: it is badly written. */
export function decodeHeader(value: string): string | undefined {
  const text = value.trim();
  const isMarked = text.startsWith(MARK) && text.endsWith(MARK_END);
  if (!isMarked || text.length < MARK.length + MARK_END.length) {
    return /^[\t\x20-\x7e]*$/.test(text) ? text : undefined;
  }
  const encoded = text.slice(MARK.length, -MARK_END.length);
  const bytes = Buffer.from(encoded, "base64");
  if (bytes.toString("base64") !== encoded) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}
