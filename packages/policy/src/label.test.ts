import { expect, test } from "vitest";
import {
  CLEAN,
  CONFIDENTIALITY,
  INTEGRITY,
  isCovered,
  isTainted,
  join,
  joinAll,
  type Label,
  label,
} from "./label.ts";
import { Random } from "./testing/random.ts";

const SOURCES = Array.from({ length: 90 }, (_, n) => `source-${n}`);

function randomLabel(random: Random): Label {
  // Sometimes so many that the bound on sources is met.
  const sources = random.some(SOURCES, random.pick([2, 10, 40]));
  return label(random.pick(CONFIDENTIALITY), random.pick(INTEGRITY), sources);
}

test("labels are a semilattice: join is idempotent, commutative, associative, with a clean bottom", () => {
  const random = new Random(31);
  let overflowed = 0;
  for (let round = 0; round < 2_000; round += 1) {
    const [a, b, c] = [randomLabel(random), randomLabel(random), randomLabel(random)];
    expect(join(a, a)).toEqual(a);
    expect(join(a, b)).toEqual(join(b, a));
    expect(join(join(a, b), c)).toEqual(join(a, join(b, c)));
    expect(join(a, CLEAN)).toEqual(a);
    expect(joinAll([a, b, c])).toEqual(join(join(a, b), c));
    if (join(a, b).sources.includes("*")) overflowed += 1;
  }
  expect(overflowed).toBeGreaterThan(10);
});

test("a join covers what went into it, and nothing lower does", () => {
  const random = new Random(32);
  for (let round = 0; round < 2_000; round += 1) {
    const [a, b] = [randomLabel(random), randomLabel(random)];
    const both = join(a, b);
    expect(isCovered(a, both) && isCovered(b, both)).toBe(true);
    expect(isCovered(a, b)).toBe(
      join(a, b).sources.join() === b.sources.join() && JSON.stringify(both) === JSON.stringify(b),
    );
  }
});

test("a taint never goes away by joining", () => {
  const random = new Random(33);
  for (let round = 0; round < 500; round += 1) {
    const [a, b] = [randomLabel(random), randomLabel(random)];
    const both = join(a, b);
    for (const level of ["internal", "secret", "user", "untrusted"] as const) {
      const taint = (one: Label) => isTainted(one.confidentiality, one.integrity, level);
      expect(taint(both)).toBe(taint(a) || taint(b));
    }
  }
});

test("a label cannot be changed", () => {
  const one = label("public", "user", ["b", "a", "a"]);
  expect(one.sources).toEqual(["a", "b"]);
  expect(() => Object.assign(one, { integrity: "trusted" })).toThrow();
  expect(() => (one.sources as string[]).push("c")).toThrow();
});
