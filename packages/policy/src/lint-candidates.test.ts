import { expect, test } from "vitest";
import { Implications } from "./implication.ts";
import { parseLayer } from "./layer.ts";
import { Candidates } from "./lint-candidates.ts";
import type { Rule } from "./rule.ts";
import { Random } from "./testing/random.ts";
import { randomCondition } from "./testing/random-condition.ts";

const PARTS = [
  'http.host == "a.example.com"',
  'http.host in ["a.example.com", "b.test"]',
  'host_in(http.host, "example.com")',
  'host_in(http.host, ["com", "b.test"])',
  "has(http.host)",
  "has(http.port)",
  "http.port == 443",
  'event.type == "http.request"',
  'event.type in ["http.request", "dns.query"]',
  "true",
  "false",
  '!(http.method == "GET")',
];

function rulesOf(conditions: readonly string[]): readonly Rule[] {
  return conditions.flatMap((match, n) => {
    const text = `[profiles.rules.r${n}]\naction = "block"\nmatch = '''${match}'''\n`;
    const parsed = parseLayer("user", text);
    return parsed.kind === "ok" ? parsed.value.rules : [];
  });
}

test("no rule is left out whose condition follows from another one's", () => {
  const random = new Random(Number(process.env.CAPSEM_FUZZ_SEED ?? 1));
  const join = (depth: number): string => {
    if (depth === 0 || random.chance(3)) return random.pick(PARTS);
    return `(${join(depth - 1)} ${random.pick(["&&", "||"])} ${join(depth - 1)})`;
  };
  let follow = 0;
  for (let round = 0; round < 12; round += 1) {
    const conditions = Array.from({ length: 30 }, (_, n) =>
      n % 3 === 0 ? randomCondition(random) : join(3),
    );
    const rules = rulesOf(conditions);
    const implications = new Implications();
    const candidates = new Candidates(rules);
    for (const narrow of rules) {
      const found = new Set(candidates.of(narrow));
      for (const [place, wide] of rules.entries()) {
        if (!implications.holds(narrow.condition.expression, wide.condition.expression)) continue;
        follow += 1;
        const pair = `${narrow.condition.source} makes ${wide.condition.source} true`;
        expect(found.has(place), pair).toBe(true);
      }
    }
  }
  // Beside each rule itself.
  expect(follow).toBeGreaterThan(600);
});

test("rules that have nothing in common are not compared", () => {
  const rules = rulesOf(
    Array.from({ length: 40 }, (_, n) => `event.type == "process.exec" && vm.name == "vm${n}"`),
  );
  const candidates = new Candidates(rules);
  expect(rules.map((rule) => candidates.of(rule).length)).toEqual(rules.map(() => 1));
});
