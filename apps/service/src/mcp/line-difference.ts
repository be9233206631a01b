import { visibleLine } from "../log/visible.ts";
import { PIN_LIMITS } from "./limits.ts";

/**
 * Lines of two texts: two spaces before one that is in both, `- ` before one of the first, `+ ` before one of the second.
 * The least that differs, where they are not too long for that; empty where nothing does.
 */
export function lineDifference(before: string, after: string): string[] {
  if (before === after) return [];
  const [old, now] = [linesOf(before), linesOf(after)];
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail))
    tail += 1;
  const middle = compared(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  const same = (lines: readonly string[]) => lines.map((line) => `  ${line}`);
  const all = [...same(old.slice(0, head)), ...middle, ...same(tail === 0 ? [] : old.slice(-tail))];
  const { differenceLinesMax, lineCharactersMax } = PIN_LIMITS;
  const shown = all.slice(0, differenceLinesMax).map((line) => visibleLine(line, lineCharactersMax));
  return all.length > shown.length ? [...shown, `  … ${all.length - shown.length} more lines`] : shown;
}

function linesOf(text: string): string[] {
  return text === "" ? [] : text.split("\n");
}

function compared(old: readonly string[], now: readonly string[]): string[] {
  const { comparedLinesMax } = PIN_LIMITS;
  if (old.length > comparedLinesMax || now.length > comparedLinesMax) {
    return [...old.map((line) => `- ${line}`), ...now.map((line) => `+ ${line}`)];
  }
  const lengths = commonLengths(old, now);
  const width = now.length + 1;
  const lines: string[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push(`  ${old[i]}`);
      i += 1;
      j += 1;
    } else if (
      j >= now.length ||
      (i < old.length && at(lengths, (i + 1) * width + j) >= at(lengths, i * width + j + 1))
    ) {
      lines.push(`- ${old[i]}`);
      i += 1;
    } else {
      lines.push(`+ ${now[j]}`);
      j += 1;
    }
  }
  return lines;
}

/** Of the longest common subsequence of what follows each pair of places. */
function commonLengths(old: readonly string[], now: readonly string[]): Uint16Array {
  const width = now.length + 1;
  const lengths = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      const isSame = old[i] === now[j];
      const [below, beside] = [at(lengths, (i + 1) * width + j), at(lengths, i * width + j + 1)];
      lengths[i * width + j] = isSame ? at(lengths, (i + 1) * width + j + 1) + 1 : Math.max(below, beside);
    }
  }
  return lengths;
}

function at(lengths: Uint16Array, index: number): number {
  return lengths[index] ?? 0;
}
