import type { Position } from "./fault.ts";

/** What the TOML parser says at a place, in words that say what to write. Its own where there is nothing to add. */
export function tomlAdvice(text: string, message: string, at: Position): string {
  const lines = text.split(/\r?\n/);
  const line = lines[at.line - 1] ?? "";
  switch (message) {
    case "Must be a newline":
      return afterText(line.slice(0, at.column - 1), line.slice(at.column - 1)) ?? message;
    case "Invalid character in escape sequence":
      return "no such escape: put the text between ' and ', where a backslash and \" stand for themselves";
    case "Defining a key multiple times is invalid":
      return twice(lines, at, line);
    case "Unexpected character":
      return unexpected(line, at) ?? message;
    default:
      return message;
  }
}

const LITERAL = "between ' and ', or ''' and ''' on several lines";

/** The text ended too early, at a quote that belongs to it. */
function afterText(before: string, after: string): string | undefined {
  const text = before.trimEnd();
  const quote = text.at(-1) ?? "";
  const isText = /^(["']).*\1$/s.test(text.slice(text.indexOf("=") + 1).trimStart());
  if (!isText || !after.includes(quote)) return undefined;
  return quote === '"'
    ? `the text ends at the " before this: put it ${LITERAL}, where " is a character like any other`
    : "the text ends at the ' before this: put it between ''' and '''";
}

/** The name in a table's header. */
function tableOf(line: string): string | undefined {
  const text = line.trim();
  if (!text.startsWith("[")) return undefined;
  return text.slice(text.startsWith("[[") ? 2 : 1, text.indexOf("]")).trim();
}

/** Names what is there twice, and where it was first. */
function twice(lines: readonly string[], at: Position, line: string): string {
  const above = lines.slice(0, at.line - 1);
  const table = tableOf(line);
  if (table !== undefined) {
    const first = above.findIndex((each) => tableOf(each) === table);
    if (first >= 0) return `table [${shown(table)}] is there already, on line ${first + 1}`;
    return `table [${shown(table)}] cannot be opened here: it, or one above it, has its keys already`;
  }
  const [key] = /^[^\s=]+/.exec(line.slice(at.column - 1)) ?? [""];
  const start = above.findLastIndex((each) => tableOf(each) !== undefined);
  const first = above.findIndex((each, index) => index > start && each.trimStart().startsWith(key));
  const name = tableOf(above[start] ?? "");
  const where = name === undefined ? "" : ` in [${shown(name)}]`;
  return `key "${shown(key)}" is there already${where}${first < 0 ? "" : `, on line ${first + 1}`}`;
}

function unexpected(line: string, { column }: Position): string | undefined {
  const [character = ""] = line.slice(column - 1);
  if (/[“”„‘’]/u.test(character)) return "texts stand in straight quotes";
  return character === ":" && !line.slice(0, column - 1).includes("=")
    ? "between a key and its value stands ="
    : undefined;
}

function shown(name: string): string {
  return name.replace(/[\p{Cc}\p{Cf}\p{Surrogate}]/gu, "?").slice(0, 120);
}
