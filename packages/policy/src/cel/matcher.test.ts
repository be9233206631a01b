import { RE2JS } from "re2js";
import { expect, test } from "vitest";
import { Random } from "../testing/random.ts";
import { randomPattern, randomText } from "../testing/random-pattern.ts";
import { createMeter, type Meter } from "./meter.ts";
import { compilePattern, type Pattern } from "./pattern.ts";

const unbounded = (): Meter => ({ left: Number.MAX_SAFE_INTEGER });

function compiled(source: string): Pattern {
  const pattern = compilePattern(source);
  if (typeof pattern === "string") throw new Error(`${source}: ${pattern}`);
  return pattern;
}

function stepsOf(pattern: Pattern, text: string): number {
  const meter = unbounded();
  pattern.test(text, meter);
  return Number.MAX_SAFE_INTEGER - meter.left;
}

const seed = Number(process.env.CAPSEM_FUZZ_SEED ?? 1);
const rounds = Number(process.env.CAPSEM_FUZZ_ROUNDS ?? 3_000);

test(`a pattern is found where the library's own engine finds it, seed ${seed}`, { timeout: 600_000 }, () => {
  const random = new Random(seed);
  const found = { yes: 0, no: 0 };
  for (let round = 0; round < rounds; round += 1) {
    const source = randomPattern(random);
    const pattern = compilePattern(source);
    if (typeof pattern === "string") continue;
    const library = RE2JS.compile(source);
    for (let texts = 0; texts < 6; texts += 1) {
      const text = randomText(random);
      const expected = library.test(text);
      found[expected ? "yes" : "no"] += 1;
      expect(pattern.test(text, unbounded()), `${JSON.stringify([source, text])}`).toBe(expected);
    }
  }
  // Both answers are common, or nothing was compared.
  expect(Math.min(found.yes, found.no)).toBeGreaterThan(rounds / 2);
});

test(`the steps of a text follow from it alone, whatever was looked at before, seed ${seed}`, () => {
  const random = new Random(seed);
  for (let round = 0; round < 200; round += 1) {
    const source = randomPattern(random);
    const [used, fresh] = [compilePattern(source), compilePattern(source)];
    if (typeof used === "string" || typeof fresh === "string") continue;
    const text = randomText(random);
    for (let texts = 0; texts < 10; texts += 1) used.test(randomText(random), unbounded());
    expect(stepsOf(used, text), JSON.stringify([source, text])).toBe(stepsOf(fresh, text));
  }
});

test.each([
  [
    "a usual pattern takes one or two steps for a character",
    String.raw`(?i)(password|secret|token)\s*[:=]`,
    2,
  ],
  ["what is pending at each character is counted with it", "[a-z ]+zzz", 5],
])("%s", (_name, source, most) => {
  const text = "the quick brown fox; const value = compute(42, 'abc');\n".repeat(1_000);
  expect(stepsOf(compiled(source), text) / text.length).toBeLessThan(most);
});

test("a text that no memory of steps helps with takes what is pending at each character, and comes out the same", () => {
  const random = new Random(seed);
  const text = Array.from({ length: 4_000 }, () => random.pick(["a", "b"])).join("");
  const source = "[ab]*a[ab]{100}[cd]";
  const pattern = compiled(source);
  const first = stepsOf(pattern, text);
  expect(first / text.length).toBeGreaterThan(40);
  // All that it had in memory was of no use to the next one, and was forgotten.
  expect(stepsOf(pattern, text)).toBe(first);
  expect(pattern.test(`${text}a${"b".repeat(100)}c`, unbounded())).toBe(true);
  expect(pattern.test(text, unbounded())).toBe(false);
});

test("where the meter has too little left there is no answer, and nothing left", () => {
  const meter = createMeter();
  meter.left = 10;
  expect(compiled("x$").test("a".repeat(100), meter)).toBeUndefined();
  expect(meter.left).toBeLessThan(0);
  expect(compiled("a").test("a", meter)).toBeUndefined();
});
