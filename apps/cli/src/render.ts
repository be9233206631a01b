import type { Color, Paint } from "./paint.ts";
import type { Powers } from "./powers.ts";

export type Cell = string | { readonly text: string; readonly color: Color | null };

/** A column that may be cut gives way down to this much: less says nothing. */
const SHRUNK_CHARS_MIN = 12;
/** And is no wider than this where others stand behind it: each row is padded to its widest cell. */
const SHRINKING_CHARS_MAX = 80;

/**
 * Columns padded to their widest cell; two spaces between. Lines that are longer than `lineMax` are cut: first in the
 * columns of `shrinks`, the widest first, so that others keep what they say.
 */
export function renderTable(
  head: readonly string[],
  rows: readonly (readonly Cell[])[],
  lineMax = Number.POSITIVE_INFINITY,
  paint: Paint = (text) => text,
  shrinks: readonly string[] = [],
): string {
  const whole = [head, ...rows.map((row) => row.map((cell) => printable(textOfCell(cell))))];
  const widths = head.map((name, at) => {
    const widest = Math.max(...whole.map((row) => row[at]?.length ?? 0));
    return shrinks.includes(name) && at < head.length - 1 ? Math.min(widest, SHRINKING_CHARS_MAX) : widest;
  });
  shrink(
    widths,
    lineMax,
    shrinks.map((name) => head.indexOf(name)),
  );
  const texts = whole.map((row) => row.map((cell, at) => cut(cell, widths[at] ?? 0)));
  const line = (row: readonly string[]) =>
    row
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join("  ")
      .trimEnd();
  return texts
    .map((row, at) => {
      const cells: readonly Cell[] = rows[at - 1] ?? head.map((text) => ({ text, color: "dim" as const }));
      return `${painted(cut(line(row), lineMax), cells, row, widths, paint)}\n`;
    })
    .join("");
}

function shrink(widths: number[], lineMax: number, columns: readonly number[]): void {
  let excess = widths.reduce((sum, width) => sum + width + 2, -2) - lineMax;
  while (excess > 0) {
    const [widest] = [...columns].sort((left, right) => (widths[right] ?? 0) - (widths[left] ?? 0));
    const width = widest === undefined ? 0 : (widths[widest] ?? 0);
    if (widest === undefined || width <= SHRUNK_CHARS_MIN) return;
    widths[widest] = width - 1;
    excess -= 1;
  }
}

function textOfCell(cell: Cell): string {
  return typeof cell === "string" ? cell : cell.text;
}

/** Colours from the last cell to the first, so that no place moves; a cell that was cut has none. */
function painted(
  line: string,
  cells: readonly Cell[],
  texts: readonly string[],
  widths: readonly number[],
  paint: Paint,
): string {
  let text = line;
  for (let at = cells.length - 1; at >= 0; at -= 1) {
    const cell = cells[at];
    const shown = texts[at] ?? "";
    const start = widths.slice(0, at).reduce((sum, width) => sum + width + 2, 0);
    if (cell === undefined || typeof cell === "string" || cell.color === null) continue;
    if (line.slice(start, start + shown.length) !== shown) continue;
    text = `${text.slice(0, start)}${paint(shown, cell.color)}${text.slice(start + shown.length)}`;
  }
  return text;
}

/** At most so many characters; what was cut ends in one that says so. */
export function cut(line: string, charsMax: number): string {
  const chars = line.length <= charsMax ? [] : [...line];
  return chars.length <= charsMax ? line : `${chars.slice(0, Math.max(0, charsMax - 1)).join("")}…`;
}

export function renderPairs(pairs: readonly (readonly [string, string])[]): string {
  const width = Math.max(...pairs.map(([key]) => key.length));
  return pairs.map(([key, value]) => `${key.padEnd(width)}  ${printable(value)}\n`).join("");
}

export function renderBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const text = unit === 0 || value >= 100 ? String(Math.round(value)) : value.toFixed(1);
  return `${text} ${units[unit]}`;
}

export function renderMode(type: string, mode: number): string {
  const letter = type === "directory" ? "d" : type === "symlink" ? "l" : type === "file" ? "-" : "?";
  const bits = [...(mode & 0o777).toString(2).padStart(9, "0")];
  return letter + bits.map((bit, at) => (bit === "1" ? "rwx"[at % 3] : "-")).join("");
}

/** Controls of the terminal, line ends that no terminal counts, and marks that turn the order of what is read. */
const STEERING = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** Text from a guest or a file may hold what would steer the reader's terminal, or make it show another text. */
export function printable(text: string): string {
  return text.replace(STEERING, escaped);
}

/** The same for text of several lines. */
export function printableLines(text: string): string {
  return text.replace(STEERING, (char) => (char === "\n" ? char : escaped(char)));
}

/** JSON that means the same, and is no danger to a terminal that it lands on. */
export function printableJson(text: string): string {
  return text.replace(STEERING, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function escaped(char: string): string {
  const code = char.charCodeAt(0).toString(16);
  return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
}

/** To the second, in UTC. */
export function renderTime(iso: string): string {
  return iso.replace(/\.\d+Z$/, "Z");
}

export function renderSpan(seconds: number): string {
  const whole = Math.floor(seconds);
  const [days, hours, minutes] = [
    Math.floor(whole / 86_400),
    Math.floor(whole / 3_600) % 24,
    Math.floor(whole / 60) % 60,
  ];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

/** To the second, where the reader is. */
export function renderLocal(iso: string | null): string {
  const at = new Date(iso ?? Number.NaN);
  if (Number.isNaN(at.getTime())) return iso ?? "-";
  const two = (value: number) => String(value).padStart(2, "0");
  const day = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
  return `${day} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":")}`;
}

/** The same, without the day on a terminal, whose lines are short, where it is today. */
export function renderMoment(iso: string | null, { stdout, now }: Pick<Powers, "stdout" | "now">): string {
  const whole = renderLocal(iso);
  const [today = ""] = renderLocal(new Date(now()).toISOString()).split(" ");
  return stdout.isTerminal && whole.startsWith(`${today} `) ? whole.slice(today.length + 1) : whole;
}

export function renderMs(ms: number | null): string {
  if (ms === null) return "-";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1_000).toFixed(1)} s` : renderSpan(ms / 1_000);
}

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}
