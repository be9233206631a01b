import { expect, test } from "vitest";
import { decideUnindexed } from "./decide.ts";
import { EVENT_TYPE_NAMES } from "./event/event-table.ts";
import { lintRules } from "./lint.ts";
import { PRESET_NAMES } from "./preset-names.ts";
import { presetLayer } from "./snapshot.ts";
import { layerOf, snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { randomCondition } from "./testing/random-condition.ts";
import { randomEvent } from "./testing/random-event.ts";

type Row = readonly [name: string, action: string, match: string, priority?: number];

function fileOf(rows: readonly Row[]): string {
  return rows
    .map(
      ([name, action, match, priority = 10]) =>
        `[profiles.rules.${name}]\naction = "${action}"\nmatch = '''${match}'''\npriority = ${priority}\n`,
    )
    .join("");
}

/** What is said of rules beside each other, or for ever; the rest is of each rule alone. */
const OF_RULES: readonly string[] = ["dead", "shadowed", "contradicting"];

function lint(...rows: readonly Row[]): string[] {
  const findings = lintRules(layerOf("user", fileOf(rows)).rules);
  return findings
    .filter(({ kind }) => OF_RULES.includes(kind))
    .map(
      ({ kind, rule_id, other_id, at }) =>
        `${kind} ${rule_id.slice(15)}${other_id === undefined ? "" : ` by ${other_id.slice(15)}`} line ${at?.line}`,
    );
}

test.each<[string, Row[], string[]]>([
  ["false", [["a", "block", "false"]], ["dead a line 1"]],
  [
    "fields of two roots",
    [["a", "block", 'http.host == "x.test" && dns.qname == "x.test"']],
    ["dead a line 1"],
  ],
  [
    "a type without the field",
    [["a", "block", 'event.type == "dns.query" && http.port == 1']],
    ["dead a line 1"],
  ],
  [
    "two values at once",
    [["a", "block", 'http.method == "GET" && http.method in ["PUT", "POST"]']],
    ["dead a line 1"],
  ],
  [
    "two domains at once",
    [["a", "block", 'host_in(http.host, "a.test") && host_in(http.host, "b.test")']],
    ["dead a line 1"],
  ],
  [
    "a domain below another",
    [["a", "block", 'host_in(http.host, "a.test") && host_in(http.host, "x.a.test")']],
    [],
  ],
  [
    "a broader rule before",
    [
      ["a", "ask", "true", 10],
      ["b", "block", "http.port == 1", 11],
    ],
    ["shadowed b by a line 5"],
  ],
  [
    "a broader rule after",
    [
      ["a", "ask", "true", 11],
      ["b", "block", "http.port == 1", 10],
    ],
    [],
  ],
  [
    "the same with other spaces",
    [
      ["a", "ask", "http.port==1", 10],
      ["b", "block", " http.port  == 1", 11],
    ],
    ["shadowed b by a line 5"],
  ],
  [
    "a domain above",
    [
      ["a", "allow", 'host_in(http.host, ["a.test", "b.test"])', 10],
      ["b", "block", 'http.host == "x.a.test" && http.method == "PUT"', 11],
    ],
    ["shadowed b by a line 5"],
  ],
  [
    "presence",
    [
      ["a", "allow", "has(http.host)", 10],
      ["b", "block", 'http.host != "x.test"', 11],
    ],
    ["shadowed b by a line 5"],
  ],
  [
    "one of two",
    [
      ["a", "allow", "http.port == 1 || http.port == 2", 10],
      ["b", "block", "http.port == 2", 11],
    ],
    ["shadowed b by a line 5"],
  ],
  [
    "both of two",
    [
      ["a", "allow", "http.port == 1", 10],
      ["b", "block", "http.port == 1 || http.port == 2", 11],
    ],
    [],
  ],
  [
    "disagreement",
    [
      ["a", "allow", "http.port == 1"],
      ["b", "block", "http.port == 1"],
    ],
    ["contradicting a by b line 1"],
  ],
  [
    "an exception that is stricter",
    [
      ["a", "allow", "true"],
      ["b", "block", "http.port == 1"],
    ],
    [],
  ],
  [
    "an exception that never wins",
    [
      ["a", "block", "true"],
      ["b", "allow", "http.port == 1"],
    ],
    ["contradicting b by a line 5"],
  ],
  [
    "the same twice",
    [
      ["a", "ask", "http.port == 1"],
      ["b", "ask", "http.port == 1"],
    ],
    ["shadowed b by a line 5"],
  ],
  [
    "rules that change",
    [
      ["a", "rewrite", "true"],
      ["b", "block", "true"],
    ],
    [],
  ],
])("%s", (_, rows, expected) => {
  expect(lint(...rows)).toEqual(expected);
});

test("presets have no findings", () => {
  for (const preset of PRESET_NAMES) expect(lintRules(presetLayer(preset).rules)).toEqual([]);
});

test("what the linter calls dead never matches, and what it calls overruled never decides", () => {
  const random = new Random(61);
  let findings = 0;
  for (let round = 0; round < 150; round += 1) {
    const conditions = Array.from({ length: 3 }, () => randomCondition(random, {}, 3));
    const pick = () =>
      random.pick([...conditions, `${random.pick(conditions)} && ${random.pick(conditions)}`]);
    const rows = Array.from(
      { length: 6 },
      (_, n): Row => [`r${n}`, random.pick(["allow", "ask", "block"]), pick(), 10 + random.below(2)],
    );
    const snapshot = snapshotOf(fileOf(rows));
    const found = lintRules(snapshot.rules).filter(
      ({ kind, rule_id }) => OF_RULES.includes(kind) && rule_id.startsWith("profiles."),
    );
    findings += found.length;
    for (let count = 0; count < 40; count += 1) {
      const decision = decideUnindexed(snapshot, randomEvent(random, random.pick(EVENT_TYPE_NAMES)));
      // A rule that cannot be computed is outside of what the linter speaks of.
      if (decision.explanation.matched.some(({ fault }) => fault !== undefined)) continue;
      const matched = new Set(decision.explanation.matched.map(({ rule_id }) => rule_id));
      for (const { kind, rule_id, other_id } of found) {
        if (kind === "dead") expect(matched).not.toContain(rule_id);
        else {
          expect(decision.rule_id).not.toBe(rule_id);
          if (matched.has(rule_id)) expect(matched).toContain(other_id);
        }
      }
    }
  }
  expect(findings).toBeGreaterThan(100);
});
