import { expect, test } from "vitest";
import { decide } from "./decide.ts";
import { type EventFields, securityEvent } from "./event/event.ts";
import type { FieldPath } from "./event/field-table.ts";
import { DECISIONS } from "./rule.ts";
import { snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { INTS, randomEvent, TEXTS, without } from "./testing/random-event.ts";
import { ruleThatHangs } from "./unseen.ts";

const ID = { event_id: "0123456789ab" };
const UNSEEN = ["file.import.content", "file.import.size"] as const satisfies readonly FieldPath[];
const rule = (name: string, match: string, action = "block", priority = 20) =>
  `[profiles.rules.${name}]\naction = "${action}"\npriority = ${priority}\nmatch = '''${match}'''\n`;

function hanging(rules: string, fields: EventFields = {}): string | undefined {
  const event = securityEvent("file.import", ID, {
    "file.import.path": "/workspace/a",
    "file.import.is_whole": false,
    "vm.name": "box",
    ...fields,
  });
  const snapshot = snapshotOf(rules);
  return ruleThatHangs(snapshot, event, decide(snapshot, event), UNSEEN)?.replace(/.*\./, "");
}

test.each<[string, string, string | undefined]>([
  ["a rule about content", rule("a", 'file.content.contains("x")'), "a"],
  ["a rule about this act's content", rule("a", 'file.import.content.contains("x")'), "a"],
  ["a rule about size", rule("a", "file.import.size > 10"), "a"],
  ["a rule about whether it was cut", rule("a", "file.truncated"), "a"],
  ["a rule that asks whether there is content", rule("a", "has(file.import.content)"), "a"],
  [
    "a rule of which the rest does not hold",
    rule("a", 'vm.name == "other" && file.content.contains("x")'),
    undefined,
  ],
  [
    "a rule of which the other half holds",
    rule("a", 'vm.name == "other" || file.content.contains("x")'),
    "a",
  ],
  ["a rule about another act's content", rule("a", 'file.export.content.contains("x")'), undefined],
  ["a rule about paths", rule("a", 'file.import.path == "/etc/passwd"'), undefined],
  ["a rule that allows", rule("a", 'file.content.contains("x")', "allow"), undefined],
  ["a rule that asks", rule("a", 'file.content.contains("x")', "ask"), "a"],
  ["a rule that changes", rule("a", 'file.content.contains("x")', "rewrite"), "a"],
  [
    "a rule that asks, where it is asked anyway",
    rule("a", 'file.content.contains("x")', "ask") + rule("b", 'vm.name == "box"', "ask"),
    undefined,
  ],
  [
    "a rule that comes too late",
    rule("a", 'file.content.contains("x")') + rule("b", 'vm.name == "box"', "allow", 10),
    undefined,
  ],
  [
    "a rule where it is refused anyway",
    rule("a", 'file.content.contains("x")') + rule("b", 'vm.name == "box"'),
    undefined,
  ],
])("%s", (_, rules, expected) => {
  expect(hanging(rules)).toBe(expected);
});

const CONDITIONS = [
  'file.import.content.contains("a")',
  'file.content == "ab"',
  "file.import.size > 2",
  "size(file.import.content) > 1",
  'file.import.path == "a"',
  'vm.name == "a"',
  "has(file.content)",
  "file.truncated",
];
/** It faults for some size: of a rule that does not block, that counts for nothing. */
const FAULTY = "10 / file.import.size > 4";

test("where no rule hangs, no content decides more strictly than what was seen", () => {
  const random = new Random(92);
  const seen = { hangs: 0, free: 0 };
  for (let round = 0; round < 3_000; round += 1) {
    const text = Array.from({ length: 3 }, (_, n) => {
      const action = random.pick(DECISIONS);
      const pick = () => (action === "block" && random.chance(8) ? FAULTY : random.pick(CONDITIONS));
      const match = random.chance(2)
        ? pick()
        : `${pick()} ${random.pick(["&&", "||"])} ${random.pick(["", "!"])}(${pick()})`;
      return rule(`r${n}`, match, action, random.pick([20, 30]));
    }).join("");
    const snapshot = snapshotOf(text);
    const whole = securityEvent("file.import", ID, {
      ...(randomEvent(random, "file.import").toJSON().fields as EventFields),
      "file.content": undefined,
      "file.import.content": random.pick(TEXTS),
      "file.import.size": random.pick(INTS),
    });
    let lean = whole;
    for (const path of [...UNSEEN, "file.content"]) lean = without(lean, path);
    const decision = decide(snapshot, lean);
    if (ruleThatHangs(snapshot, lean, decision, UNSEEN) !== undefined) {
      seen.hangs += 1;
      continue;
    }
    seen.free += 1;
    const strictness = DECISIONS.indexOf(decide(snapshot, whole).action);
    expect(strictness, text).toBeLessThanOrEqual(DECISIONS.indexOf(decision.action));
  }
  expect(Math.min(seen.hangs, seen.free)).toBeGreaterThan(300);
});
