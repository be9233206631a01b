import { type AST, ParseError, parseTOML } from "toml-eslint-parser";
import type { Checked, PolicyFault, Position } from "./fault.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { tomlAdvice } from "./toml-advice.ts";

export type TomlValue = string | bigint | number | boolean | readonly TomlValue[];

/** A value and where it stands. `placeOf` says where a character of a text value stands in the file. */
export interface TomlEntry {
  readonly path: readonly string[];
  /** Undefined for a table header, and for what a rule file has no use for: dates, tables in lists. */
  readonly value: TomlValue | undefined;
  readonly kind: "table" | "value" | "unsupported";
  readonly keyAt: Position;
  readonly valueAt: Position;
  readonly placeOf: (offset: number) => Position;
}

/** Flattens a TOML text into its headers and values, in order. One fault at most: the parser stops at it. */
export function readToml(text: string): Checked<readonly TomlEntry[]> {
  return parsed(text, (body) => entriesOf(text, body));
}

type TomlBody = readonly (AST.TOMLTable | AST.TOMLKeyValue)[];

function entriesOf(text: string, body: TomlBody): readonly TomlEntry[] {
  const entries: TomlEntry[] = [];
  const reader = new Reader(text, entries);
  for (const node of body) reader.node(node, []);
  return entries;
}

/** As `readToml`, with what stands where: for who changes the text next. */
export function readTomlWithOutline(
  text: string,
): Checked<{ readonly entries: readonly TomlEntry[]; readonly outline: readonly TomlNode[] }> {
  return parsed(text, (body) => ({ entries: entriesOf(text, body), outline: outlineIn(text, body) }));
}

/** A header or a pair, and where it stands in the text: offsets in UTF-16 units, ends behind the last one. */
export interface TomlNode {
  readonly kind: "table" | "pair";
  readonly path: readonly string[];
  readonly start: number;
  /** Of a table: behind its header. */
  readonly end: number;
  /** Of a pair; `end` of a table. */
  readonly valueStart: number;
  /** Pairs of a table or of an inline table; undefined for any other value. */
  readonly body: readonly TomlNode[] | undefined;
}

/** The text as what stands where, for who changes a part of it. Comments and blank lines are what is between. */
export function outlineToml(text: string): Checked<readonly TomlNode[]> {
  return parsed(text, (body) => outlineIn(text, body));
}

function outlineIn(text: string, body: TomlBody): readonly TomlNode[] {
  return body.map((node) => outlineOf(text, node, []));
}

function outlineOf(text: string, node: AST.TOMLTable | AST.TOMLKeyValue, above: readonly string[]): TomlNode {
  const path = [...above, ...namesOf(node.key)];
  const [start] = node.range;
  if (node.type === "TOMLTable") {
    const end = text.indexOf("]", node.key.range[1]) + 1;
    const body = node.body.map((inner) => outlineOf(text, inner, path));
    return { kind: "table", path, start, end, valueStart: end, body };
  }
  const [valueStart, end] = node.value.range;
  const body =
    node.value.type === "TOMLInlineTable"
      ? node.value.body.map((inner) => outlineOf(text, inner, path))
      : undefined;
  return { kind: "pair", path, start, end, valueStart, body };
}

function namesOf(key: AST.TOMLKey): string[] {
  return key.keys.map((part) => (part.type === "TOMLBare" ? part.name : part.value));
}

/** Parses within the bounds, and gives what `make` makes of the tables and pairs, or the one fault. */
function parsed<T>(text: string, make: (body: TomlBody) => T): Checked<T> {
  const start = { line: 1, column: 1 };
  if (text.length > POLICY_LIMITS.fileBytesMax) {
    return refused("too_large", `the file is longer than ${POLICY_LIMITS.fileBytesMax} characters`, start);
  }
  if (text.startsWith("\ufeff")) {
    return refused("syntax", "the file begins with a byte order mark; save it as UTF-8 without one", start);
  }
  try {
    return { kind: "ok", value: make(parseTOML(text, { tomlVersion: "1.0" }).body[0].body) };
  } catch (error) {
    if (error instanceof ParseError) {
      const at = { line: error.lineNumber, column: error.column + 1 };
      return refused("syntax", tomlAdvice(text, error.message, at), at);
    }
    // The parser recurses over nested arrays and spreads long strings into calls.
    if (error instanceof RangeError) {
      return refused("too_large", "a value is nested too deeply or too long", start);
    }
    throw error;
  }
}

function refused(code: PolicyFault["code"], message: string, at: Position): Checked<never> {
  return { kind: "refused", faults: [{ code, message, at, subject: undefined }] };
}

class Reader {
  readonly #text: string;
  readonly #entries: TomlEntry[];

  constructor(text: string, entries: TomlEntry[]) {
    this.#text = text;
    this.#entries = entries;
  }

  node(node: AST.TOMLTable | AST.TOMLKeyValue, above: readonly string[]): void {
    const keyAt = placeOfStart(node.key.loc.start);
    const path = [...above, ...namesOf(node.key)];
    if (node.type === "TOMLTable") {
      const kind = node.kind === "array" ? "unsupported" : "table";
      this.#entries.push({ path, kind, value: undefined, keyAt, valueAt: keyAt, placeOf: () => keyAt });
      for (const inner of node.body) this.node(inner, path);
      return;
    }
    const valueAt = placeOfStart(node.value.loc.start);
    if (node.value.type === "TOMLInlineTable") {
      const at = { path, kind: "table", value: undefined, keyAt, valueAt, placeOf: () => valueAt } as const;
      this.#entries.push(at);
      for (const inner of node.value.body) this.node(inner, path);
      return;
    }
    const value = tomlValueOf(node.value);
    const raw = this.#text.slice(node.value.range[0], node.value.range[1]);
    this.#entries.push({
      path,
      kind: value === undefined ? "unsupported" : "value",
      value,
      keyAt,
      valueAt,
      placeOf: (offset) => placeInText(raw, valueAt, offset),
    });
  }
}

function placeOfStart(start: { readonly line: number; readonly column: number }): Position {
  return { line: start.line, column: start.column + 1 };
}

function tomlValueOf(node: AST.TOMLContentNode): TomlValue | undefined {
  if (node.type === "TOMLArray") {
    const items = node.elements.map(tomlValueOf);
    return items.every((item) => item !== undefined) ? items : undefined;
  }
  if (node.type !== "TOMLValue") return undefined;
  switch (node.kind) {
    case "integer":
      return node.bigint;
    case "string":
    case "float":
    case "boolean":
      return node.value;
    default:
      return undefined;
  }
}

/** Walks the quoted source until `offset` characters of the value have gone by. */
function placeInText(raw: string, start: Position, offset: number): Position {
  const quote = raw.startsWith('"""') || raw.startsWith("'''") ? raw.slice(0, 3) : raw.slice(0, 1);
  const hasEscapes = quote.startsWith('"');
  let at = quote.length;
  if (quote.length === 3) at += /^\r?\n/.exec(raw.slice(at))?.[0].length ?? 0;
  let left = offset;
  while (left > 0 && at < raw.length - quote.length) {
    const step =
      hasEscapes && raw[at] === "\\"
        ? escapeAt(raw, at)
        : { length: raw.startsWith("\r\n", at) ? 2 : 1, makes: 1 };
    at += step.length;
    left -= step.makes;
  }
  const before = raw.slice(0, at).split("\n");
  const last = before.at(-1) ?? "";
  return before.length === 1
    ? { line: start.line, column: start.column + at }
    : { line: start.line + before.length - 1, column: last.length + 1 };
}

/** Length of an escape in the source, and how many UTF-16 units it makes. */
function escapeAt(raw: string, at: number): { readonly length: number; readonly makes: number } {
  const fold = /^\\[ \t]*\r?\n\s*/.exec(raw.slice(at));
  if (fold !== null) return { length: fold[0].length, makes: 0 };
  const kind = raw[at + 1];
  if (kind === "u") return { length: 6, makes: 1 };
  if (kind !== "U") return { length: 2, makes: 1 };
  return { length: 10, makes: Number.parseInt(raw.slice(at + 2, at + 10), 16) > 0xffff ? 2 : 1 };
}
