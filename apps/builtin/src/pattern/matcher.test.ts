import { expect, test } from "vitest";
import { PATTERN_LIMITS } from "../limits.ts";
import { Matcher } from "./matcher.ts";

const search = (pattern: string, line: string, ignoreCase = false) =>
  new Matcher(pattern, ignoreCase).search(line);

/** Pattern, lines in which it is found, lines in which it is not. */
const CASES: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  ["abc", ["abc", "xxabcxx", "ababc"], ["", "ab", "acb"]],
  ["a.c", ["abc", "a😀c"], ["ac", "abbc"]],
  ["a|bc|", ["", "x"], []],
  ["^a|b$", ["ax", "xb"], ["xa", "bx"]],
  ["^$", [""], ["x"]],
  ["\\Aab\\z", ["ab"], ["abc", "cab"]],
  ["a*b", ["b", "aaab"], ["a", ""]],
  ["a+b", ["ab", "xaab"], ["b"]],
  ["colou?r", ["color", "colour"], ["colr"]],
  ["(ab){2,3}c", ["ababc", "abababc", "ababababc"], ["abc"]],
  ["^(ab){2,3}c", ["ababc"], ["ababababc"]],
  ["x{0}y", ["y"], ["x"]],
  ["^x{2,}$", ["xx", "xxxx"], ["x", "xxa"]],
  ["a{,2}", ["a{,2}"], ["aa"]],
  ["{x}", ["{x}"], ["x"]],
  ["[a-c]x", ["bx"], ["dx"]],
  ["[^a-c]x", ["dx", "😀x"], ["ax", "x"]],
  ["[]a]", ["]", "a"], ["b"]],
  ["[a-]", ["-", "a"], ["b"]],
  ["[\\d\\-x]", ["7", "-", "x"], ["y"]],
  ["[\\W]", [" "], ["a_9"]],
  ["\\bfoo\\b", ["foo", "a foo.", "foo-bar"], ["food", "afoo", "foo_"]],
  ["\\Boo", ["foo"], ["oo", " oo"]],
  ["\\w+@\\w+\\.com", ["mail joe@example.com now"], ["joe@example.org"]],
  ["\\x41\\u0042\\x{1F600}", ["AB😀"], ["AB"]],
  ["\\.\\*\\\\", [".*\\"], ["a*b"]],
  ["(?:a|b)(?P<n>c)(?<m>d)", ["acd", "bcd"], ["cd"]],
  ["a*?b+?", ["ab", "b"], ["a"]],
  ["(a*)*b", ["aaab", "b"], ["a"]],
  ["(|a)+b", ["b", "aab"], ["a"]],
  ["^\\s*$", ["", "   ", "\t "], ["x"]],
  ["é", ["café"], ["cafe"]],
];

test.each(CASES)("%s is found where JavaScript's own expressions find it", (pattern, found, missed) => {
  for (const line of found) expect([line, search(pattern, line) >= 0]).toEqual([line, true]);
  for (const line of missed) expect([line, search(pattern, line)]).toEqual([line, -1]);
});

test.each([
  ["straße", "STRAẞE"],
  ["ÄRGER", "ärger"],
  ["[a-f]+z", "DEAD beef AFZ"],
  ["σ", "Σ"],
])("%s is found in %s where case is ignored, and not otherwise", (pattern, line) => {
  expect(search(pattern, line, true)).toBeGreaterThanOrEqual(0);
  expect(search(pattern, line, false)).toBe(-1);
});

test("a complement leaves out both cases, and takes in none by a letter that folds to another", () => {
  expect(search("[^a]", "A", true)).toBe(-1);
  expect(search("^[^a-z]$", "s", true)).toBe(-1);
  expect(search("^\\W$", "s", true)).toBe(-1);
});

test.each([
  ["(", "a ( without"],
  [")", "a ) without"],
  ["[a", "too early"],
  ["*a", "nothing before"],
  ["a**", "repeat of a repeat"],
  ["a{2}{3}", "repeat of a repeat"],
  ["a{3,2}", "backwards"],
  ["a{2000}", "1000 times"],
  ["\\1", "\\1 is not supported"],
  ["(?=a)", "look-around"],
  ["(?<=a)", "look-around"],
  ["(?<!a)", "look-around"],
  ["(?i)a", "flags"],
  ["\\pL", "\\p is not supported"],
  ["[[:alpha:]]", "not supported"],
  ["[z-a]", "backwards"],
  ["[a-\\d]", "no end"],
  ["\\x{110000}", "no code point"],
  ["\\", "too early"],
  ["(".repeat(100), "too deep"],
  ["a".repeat(PATTERN_LIMITS.charactersMax + 1), "characters, limit"],
  ["((((a{1000}){1000}){1000}){1000})", "too long"],
  ["(((){1000}){1000}){1000}", "too long"],
])("%s is refused with a reason", (pattern, words) => {
  expect(() => search(pattern, "x")).toThrow(words);
});

test("what takes an engine that goes back for ever takes this one no time", () => {
  const line = `${"a".repeat(50_000)}!`;
  const startedAt = performance.now();
  for (const pattern of ["^(a+)+$", "(a|aa)+$", "(a*)*b", "^(a?){500}a{500}b"])
    expect([pattern, search(pattern, line)]).toEqual([pattern, -1]);
  // A line of 35 of them would take such an engine minutes.
  expect(performance.now() - startedAt).toBeLessThan(20_000);
});

test("more states than are kept are forgotten, and what is found stays right", () => {
  // The last but n-th character counts: as many states as there are lines of n letters.
  const matcher = new Matcher("a[ab]{14}$", false);
  let seed = 7;
  const random = () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed / 2_147_483_648;
  };
  for (let round = 0; round < 20; round += 1) {
    const line = Array.from({ length: 2_000 }, () => (random() < 0.5 ? "a" : "b")).join("");
    expect(matcher.search(line) >= 0).toBe(line.at(-15) === "a");
  }
});

test("random patterns are found where JavaScript's own expressions find them", () => {
  let seed = 20_240_607;
  const random = (bound: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((seed / 2_147_483_648) * bound);
  };
  const atoms = ["a", "b", ".", "[ab]", "[^a]", "\\w", "\\b", "^", "$", "\\d"];
  const make = (depth: number): string => {
    const parts = Array.from({ length: 1 + random(3) }, () => {
      const atom =
        depth > 0 && random(3) === 0 ? `(${make(depth - 1)})` : (atoms[random(atoms.length)] ?? "a");
      const isEdge = ["\\b", "^", "$"].includes(atom);
      return `${atom}${isEdge ? "" : (["", "", "*", "+", "?", "{1,2}"][random(6)] ?? "")}`;
    });
    return parts.join(random(4) === 0 ? "|" : "");
  };
  for (let round = 0; round < 2_000; round += 1) {
    const pattern = make(2);
    const line = Array.from({ length: random(8) }, () => "ab1 -"[random(5)]).join("");
    expect([pattern, line, search(pattern, line) >= 0]).toEqual([
      pattern,
      line,
      new RegExp(pattern, "u").test(line),
    ]);
  }
});
