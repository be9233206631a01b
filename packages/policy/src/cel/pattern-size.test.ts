import { RE2JS } from "re2js";
import { expect, test } from "vitest";
import { Random } from "../testing/random.ts";
import { randomPattern } from "../testing/random-pattern.ts";
import { patternSize } from "./pattern-size.ts";

/** The instruction that fails, the one that has found, and the group of the whole. */
const FRAME = 4;

test.each<[string, number]>([
  ["", 0],
  ["abc", 3],
  ["a{1000}", 1_000],
  ["(a{10}){10}", 120],
  ["a{2,5}", 10],
  ["a{3,}", 8],
  ["(?:a|b)*", 7],
  ["[abc]{5}", 5],
  ["[]a{9}]", 1],
  ["[[:alpha:]{9}]", 1],
  ["[^]{9}]", 1],
  ["\\[a{9}", 10],
  ["\\{9}", 3],
  ["\\pL{100}", 164],
  ["[\\p{Greek}\\pN]", 129],
  ["[\\x{80}-\\x{ffff}]", 1],
  ["(?i)[\\x{80}-\\x{ffff}]", 1_023],
  ["(?i:[a-z])", 4],
  ["\\Qa{9}\\E", 8],
  ["(?P<name>a)b", 4],
  ["((((", 0],
  ["a)b", 5],
  ["a{99999}", 8],
])("%s has the size %i", (source, size) => {
  expect(patternSize(source)).toBe(size);
});

test("no pattern is larger when it is compiled", () => {
  const random = new Random(Number(process.env.CAPSEM_FUZZ_SEED ?? 1));
  let compared = 0;
  for (let round = 0; round < 4_000; round += 1) {
    const source = randomPattern(random);
    let program: number;
    try {
      program = RE2JS.compile(source).programSize();
    } catch {
      continue;
    }
    compared += 1;
    expect(patternSize(source) + FRAME, JSON.stringify(source)).toBeGreaterThanOrEqual(program);
  }
  expect(compared).toBeGreaterThan(2_000);
});
