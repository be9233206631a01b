import { expect, test } from "vitest";
import { costInPasses } from "../../../../tests/support/cost.ts";
import { lineDifference } from "./line-difference.ts";

test.each([
  ["nothing", "a\nb", "a\nb", []],
  ["a new text", "", "a\nb", ["+ a", "+ b"]],
  ["a text that is gone", "a\nb", "", ["- a", "- b"]],
  ["a line in the middle", "a\nb\nc", "a\nx\nc", ["  a", "- b", "+ x", "  c"]],
  ["lines that moved", "a\nb\nc\nd", "b\nc\na\nd", ["- a", "  b", "  c", "+ a", "  d"]],
  ["what repeats", "a\na\na", "a\na", ["  a", "  a", "- a"]],
])("%s differs by the least lines", (_name, before, after, lines) => {
  expect(lineDifference(before, after)).toEqual(lines);
});

test("what would turn a terminal or hide a line is shown as what it is", () => {
  expect(lineDifference("a", "\u001b[2Jb\u202ec")).toEqual(["- a", "+ \\x1b[2Jb\\u{202e}c"]);
});

test("texts that are too long to compare are shown whole, as far as a person reads", () => {
  const lines = (mark: string) => Array.from({ length: 5_000 }, (_, n) => `${mark}${n}`).join("\n");
  const [before, after] = [lines("a"), lines("b")];
  const shown = lineDifference(before, after);
  expect(shown.length).toBe(4_001);
  expect(shown.at(-1)).toBe("  … 6000 more lines");
  expect(costInPasses(() => lineDifference(before, after), 3)).toBeLessThan(1_000);
});
