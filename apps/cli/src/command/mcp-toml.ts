import { Failure } from "@capsem/base";
import type { ConfigFormat, McpServerEntry } from "./mcp-clients.ts";
import { scanToml, type TomlStatement } from "./mcp-toml-statements.ts";

/** Long commands outlive Codex's own limit of a minute; the user may change it, so it is written once. */
const TOOL_TIMEOUT_SECS = 600;

/** TOML that is changed in one table: comments and everything else stay. */
export const tomlFormat: ConfigFormat = {
  set: (text, keys, entry) => {
    const old = text ?? "";
    const statements = scanToml(old);
    refuseInline(statements, keys);
    const table = tableOf(statements, keys);
    return table === null ? append(old, keys, entry) : setPairs(old, table, entry);
  },
  remove: (text, keys) => {
    if (text === null) return null;
    const statements = scanToml(text);
    refuseInline(statements, keys);
    let result = text;
    // From the end, so that places before it stay valid.
    for (const part of sections(statements, text.length).reverse())
      if (startsWith(part.path, keys)) result = result.slice(0, part.start) + result.slice(part.end);
    return result === text ? text : result.replace(/\n{3,}$/, "\n").replace(/\n\n$/, "\n");
  },
};

interface Section {
  readonly path: readonly string[];
  readonly start: number;
  readonly end: number;
  readonly pairs: readonly TomlStatement[];
}

/** Tables with the statements below their headers; comments right above a header are of that table. */
function sections(statements: readonly TomlStatement[], length: number): Section[] {
  const headers = statements.filter(({ kind }) => kind === "header");
  return headers.map((header, at) => {
    const end = headers[at + 1]?.lead ?? length;
    const pairs = statements.filter(
      ({ kind, start }) => kind === "pair" && start > header.start && start < end,
    );
    return { path: header.path, start: header.lead, end, pairs };
  });
}

function tableOf(statements: readonly TomlStatement[], keys: readonly string[]): Section | null {
  const found = sections(statements, Number.POSITIVE_INFINITY).filter(({ path }) => isSame(path, keys));
  if (found.length > 1) throw new Failure("file_failed", `[${keys.join(".")}] is in it twice`);
  return found[0] ?? null;
}

/** A table may also be written as a value or with dotted names, which this does not rewrite. */
function refuseInline(statements: readonly TomlStatement[], keys: readonly string[]): void {
  let table: readonly string[] = [];
  for (const { kind, path } of statements) {
    if (kind === "header") table = path;
    else {
      const full = [...table, ...path];
      const isInside = startsWith(full, keys) && !startsWith(table, keys);
      const isAbove = path.length > 0 && full.length < keys.length && startsWith(keys, full);
      if (isInside || isAbove)
        throw new Failure(
          "file_failed",
          `${full.join(".")} is written inline; change it by hand, see --print`,
        );
    }
  }
}

function append(old: string, keys: readonly string[], entry: McpServerEntry): string {
  const gap = old === "" ? "" : old.endsWith("\n\n") ? "" : old.endsWith("\n") ? "\n" : "\n\n";
  const lines = [`[${keys.join(".")}]`, ...pairsOf(entry), `tool_timeout_sec = ${TOOL_TIMEOUT_SECS}`];
  return `${old}${gap}${lines.join("\n")}\n`;
}

function setPairs(old: string, table: Section, entry: McpServerEntry): string {
  let result = old;
  const missing: string[] = [];
  const places = pairsOf(entry).map((line) => {
    const key = line.slice(0, line.indexOf(" "));
    const pair = table.pairs.find(({ path }) => isSame(path, [key]));
    if (pair === undefined) missing.push(line);
    return { line, pair };
  });
  const found = places.flatMap(({ line, pair }) => (pair === undefined ? [] : [{ line, pair }]));
  for (const { line, pair } of found.sort((a, b) => b.pair.start - a.pair.start))
    result = result.slice(0, pair.start) + line + result.slice(pair.end);
  if (missing.length === 0) return result;
  const headerEnd = result.indexOf("\n", result.indexOf("[", table.start));
  const at = headerEnd < 0 ? result.length : headerEnd;
  return `${result.slice(0, at)}\n${missing.join("\n")}${result.slice(at)}`;
}

/** JSON's escapes of a string are TOML's. */
function pairsOf({ command, args }: McpServerEntry): string[] {
  return [
    `command = ${JSON.stringify(command)}`,
    `args = [${args.map((arg) => JSON.stringify(arg)).join(", ")}]`,
  ];
}

function isSame(left: readonly string[], right: readonly string[]): boolean {
  return left.length === right.length && startsWith(left, right);
}

function startsWith(path: readonly string[], head: readonly string[]): boolean {
  return head.every((word, at) => path[at] === word);
}
