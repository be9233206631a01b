/** Columns padded to their widest cell; two spaces between. Lines that are longer than `lineMax` are cut. */
export function renderTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  lineMax = Number.POSITIVE_INFINITY,
): string {
  const all = [head, ...rows];
  const widths = head.map((_, at) => Math.max(...all.map((row) => row[at]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    row
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join("  ")
      .trimEnd();
  return all.map((row) => `${cut(line(row), lineMax)}\n`).join("");
}

function cut(line: string, charsMax: number): string {
  const chars = line.length <= charsMax ? [] : [...line];
  return chars.length <= charsMax ? line : `${chars.slice(0, charsMax - 3).join("")}...`;
}

export function renderPairs(pairs: readonly (readonly [string, string])[]): string {
  const width = Math.max(...pairs.map(([key]) => key.length));
  return pairs.map(([key, value]) => `${key.padEnd(width)}  ${value}\n`).join("");
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

/** Text from a guest may hold escape sequences that would steer the reader's terminal. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, (char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`);
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
