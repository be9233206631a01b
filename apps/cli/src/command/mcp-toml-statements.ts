import { Failure } from "@capsem/base";

/** A table's header, or a key with its value. */
export interface TomlStatement {
  readonly kind: "header" | "pair";
  readonly path: readonly string[];
  /** Of the statement itself: without the line's indentation, its comment and its end. */
  readonly start: number;
  readonly end: number;
  /** Where the comments right above it begin, its own line where there are none. */
  readonly lead: number;
}

/** A name in quotes is bounded: the engine's stack is taken for each of its characters. */
const KEY = /[ \t]*(?:([A-Za-z0-9_-]+)|"((?:[^"\\\n]|\\.){0,4096})"|'([^'\n]*)')[ \t]*/y;

/** As much of TOML as it takes to know where statements begin and end. What it cannot follow is refused. */
export function scanToml(text: string): TomlStatement[] {
  const statements: TomlStatement[] = [];
  let at = 0;
  let lead: number | null = null;
  while (at < text.length) {
    const lineStart = at;
    at = skip(text, at, /[ \t]*/y);
    const first = text[at];
    if (first === "\n" || first === "\r" || first === undefined) {
      lead = null;
      at = lineEnd(text, at);
      continue;
    }
    if (first === "#") {
      lead ??= lineStart;
      at = lineEnd(text, at);
      continue;
    }
    const start = at;
    const read = first === "[" ? readHeader(text, at) : readPair(text, at);
    statements.push({ kind: first === "[" ? "header" : "pair", ...read, start, lead: lead ?? lineStart });
    lead = null;
    at = skip(text, read.end, /[ \t]*(?:#[^\n]*)?\r?/y);
    if (at < text.length && text[at] !== "\n") throw broken(text, at, "a line's end is needed");
    at += 1;
  }
  return statements;
}

function readHeader(text: string, start: number): { path: string[]; end: number } {
  const isList = text.startsWith("[[", start);
  const { path, end } = readPath(text, start + (isList ? 2 : 1));
  const close = isList ? "]]" : "]";
  if (!text.startsWith(close, end)) throw broken(text, end, `${close} is needed`);
  return { path, end: end + close.length };
}

function readPair(text: string, start: number): { path: string[]; end: number } {
  const { path, end } = readPath(text, start);
  if (text[end] !== "=") throw broken(text, end, "= is needed");
  return { path, end: readValue(text, skip(text, end + 1, /[ \t]*/y)) };
}

function readPath(text: string, start: number): { path: string[]; end: number } {
  const path: string[] = [];
  let at = start;
  for (;;) {
    KEY.lastIndex = at;
    const found = KEY.exec(text);
    if (found === null) throw broken(text, at, "a name is needed");
    path.push(found[1] ?? found[3] ?? nameInQuotes(text, at, found[2] ?? ""));
    at += found[0].length;
    if (text[at] !== ".") return { path, end: at };
    at += 1;
  }
}

function readValue(text: string, start: number): number {
  const first = text[start];
  if (first === '"' || first === "'") return readString(text, start);
  if (first === "[" || first === "{") return readNested(text, start);
  // A date and its time may have a space between them.
  const end = skip(text, start, /[^\s#,\]}"'[{]+(?: \d\d:[^\s#,\]}]+)?/y);
  if (end === start) throw broken(text, start, "a value is needed");
  return end;
}

/** Lists and inline tables nest over lines, and a string or comment in them may hold any bracket. */
function readNested(text: string, start: number): number {
  let depth = 0;
  let at = start;
  while (at < text.length) {
    const char = text[at] ?? "";
    if (char === '"' || char === "'") at = readString(text, at);
    else if (char === "#") at = lineEnd(text, at);
    else {
      at += 1;
      if ("[{".includes(char)) depth += 1;
      else if ("]}".includes(char)) depth -= 1;
      if (depth === 0) return at;
    }
  }
  throw broken(text, start, "a value without an end");
}

function readString(text: string, start: number): number {
  const quote = text[start] ?? "";
  const long = quote.repeat(3);
  const isLong = text.startsWith(long, start);
  let at = start + (isLong ? 3 : 1);
  for (; at < text.length; at += 1) {
    if (quote === '"' && text[at] === "\\") at += 1;
    else if (isLong && text.startsWith(long, at)) {
      // Up to two quotes may stand right before the end.
      while (text[at + 3] === quote) at += 1;
      return at + 3;
    } else if (!isLong && text[at] === quote) return at + 1;
    else if (!isLong && text[at] === "\n") break;
  }
  throw broken(text, start, "a string without an end");
}

function nameInQuotes(text: string, at: number, inner: string): string {
  try {
    return JSON.parse(`"${inner}"`) as string;
  } catch {
    throw broken(text, at, "a name cannot be read");
  }
}

function skip(text: string, at: number, pattern: RegExp): number {
  pattern.lastIndex = at;
  return at + (pattern.exec(text)?.[0].length ?? 0);
}

function lineEnd(text: string, at: number): number {
  const end = text.indexOf("\n", at);
  return end < 0 ? text.length : end + 1;
}

function broken(text: string, at: number, why: string): Failure {
  const line = text.slice(0, at).split("\n").length;
  return new Failure("file_failed", `it is not TOML, line ${line}: ${why}`);
}
