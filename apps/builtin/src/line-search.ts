import { TEXT_LIMITS } from "./limits.ts";
import type { Matcher } from "./pattern/matcher.ts";
import { partOf } from "./text-page.ts";

export interface SearchOptions {
  /** Lines before and behind each match. */
  readonly context: number;
  readonly matchesMax: number;
}

export interface LineMatch {
  /** From 1. */
  readonly line: number;
  readonly text: string;
  /** The line is longer: this is what lies around the match. */
  readonly is_cut: boolean;
  readonly before: readonly string[];
  readonly after: readonly string[];
}

export interface SearchResult {
  readonly matches: readonly LineMatch[];
  /** Lines that match, shown or not. */
  readonly total_matches: number;
  readonly total_lines: number;
  /** Some are not shown. */
  readonly is_cut: boolean;
}

export function searchLines(text: string, matcher: Matcher, options: SearchOptions): SearchResult {
  const lines = text.split("\n").map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
  // What ends with a line feed has no line behind it.
  if (lines.at(-1) === "") lines.pop();
  const matches: LineMatch[] = [];
  let total = 0;
  let chars = 0;
  for (const [index, line] of lines.entries()) {
    const end = matcher.search(line);
    if (end < 0) continue;
    total += 1;
    if (matches.length >= options.matchesMax || chars >= TEXT_LIMITS.grepCharsMax) continue;
    const match = matchAt(lines, index, end, options.context);
    chars += [match.text, ...match.before, ...match.after].reduce((sum, each) => sum + each.length, 0);
    matches.push(match);
  }
  return { matches, total_matches: total, total_lines: lines.length, is_cut: matches.length < total };
}

function matchAt(lines: readonly string[], index: number, end: number, context: number): LineMatch {
  const line = lines[index] ?? "";
  const isCut = line.length > TEXT_LIMITS.lineCharsMax;
  // More of it lies before the place where a match ends.
  const from = Math.max(
    0,
    Math.min(end - TEXT_LIMITS.lineCharsMax / 2, line.length - TEXT_LIMITS.lineCharsMax),
  );
  return {
    line: index + 1,
    text: isCut ? partOf(line, from, from + TEXT_LIMITS.lineCharsMax) : line,
    is_cut: isCut,
    before: lines.slice(Math.max(0, index - context), index).map(cut),
    after: lines.slice(index + 1, index + 1 + context).map(cut),
  };
}

const cut = (line: string) => partOf(line, 0, TEXT_LIMITS.lineCharsMax);

/** As grep shows them: `12:` before a line that matches, `11-` before one around it, `--` between. */
export function searchText({ matches }: SearchResult): string {
  const shown: string[] = [];
  let last = 0;
  for (const { line, text, before, after } of matches) {
    const first = line - before.length;
    if (last > 0 && first > last + 1 && (before.length > 0 || after.length > 0)) shown.push("--");
    for (const [index, each] of before.entries())
      if (first + index > last) shown.push(`${first + index}-${each}`);
    // It may have been shown as one behind the match before it.
    if (line <= last) shown.splice(shown.length - (last - line) - 1);
    shown.push(`${line}:${text}`);
    for (const [index, each] of after.entries()) shown.push(`${line + 1 + index}-${each}`);
    last = line + after.length;
  }
  return shown.join("\n");
}
