import { expect, test } from "vitest";
import { wrap } from "./wrap.ts";

const CASES: [string, string, number, number, string[]][] = [
  ["what fits stays one line", "one two", 7, 2, ["one two"]],
  ["what does not is broken between words", "one two three", 8, 2, ["one two", "  three"]],
  ["the first line begins as the text does", "    one two", 8, 4, ["    one", "    two"]],
  [
    "a word that is too long stands alone and whole",
    "a longer-than-that b",
    8,
    0,
    ["a", "longer-than-that", "b"],
  ],
  ["nothing is nothing", "", 8, 2, [""]],
  ["spaces inside stay", "a  b", 80, 2, ["a  b"]],
];
test.each(CASES)("%s", (_, text, charsMax, indent, lines) => {
  expect(wrap(text, charsMax, indent)).toEqual(lines);
});
