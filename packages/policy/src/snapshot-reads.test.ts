import { expect, test } from "vitest";
import { decide } from "./decide.ts";
import { SecurityEvent } from "./event/event.ts";
import { CARRIED, EVENT_TYPE_NAMES } from "./event/event-table.ts";
import { FIELD_PATHS, type FieldPath } from "./event/field-table.ts";
import { snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { randomCondition } from "./testing/random-condition.ts";
import { randomEvent, without } from "./testing/random-event.ts";

const readBy = (match: string, path: FieldPath, more = "") =>
  snapshotOf(`[profiles.rules.a]\naction = "block"\nmatch = '''${match}'''\n${more}`).reads(path);

test.each<[string, string, FieldPath, boolean]>([
  ["a value", 'file.content.contains("x")', "file.content", true],
  ["another value", 'file.read.path == "/x"', "file.content", false],
  ["presence", "has(file.content)", "file.content", true],
  ["presence of a name above it", "has(file.read)", "file.read.content", true],
  ["presence of another name", "has(file.read)", "file.write.content", false],
  ["a key of a map", 'http.headers["x"] == "y"', "http.headers", true],
  ["a loop", 'vm.labels.exists(l, l == "x")', "vm.labels", true],
  ["a label", 'tainted(label, "secret")', "label.integrity", true],
  ["a content by the name of its act", 'file.write.content == "x"', "file.content", true],
  ["a content by its common name", 'file.content == "x"', "file.write.content", true],
  ["what is made of it", 'file.import.ext == "env"', "file.import.path", true],
  ["whether it was cut", "process.truncated", "process.exec.stdout", true],
  ["whether something else was cut", "process.truncated", "file.content", false],
  ["a flag that is not about it", "process.truncated", "process.exec.path", false],
])("%s: reads says whether a field is worth collecting", (_, match, path, expected) => {
  expect(readBy(match, path)).toBe(expected);
});

test("a disabled rule reads nothing, and a changing one reads what it asks for", () => {
  expect(readBy("has(file.content)", "file.content", "enabled = false\n")).toBe(false);
  expect(readBy("has(file.content)", "file.content")).toBe(true);
  expect(snapshotOf("").reads("file.content")).toBe(false);
  expect(snapshotOf("").reads("http.host")).toBe(true);
});

test("an event without what nobody reads is decided as the whole one", () => {
  const random = new Random(91);
  let left = 0;
  for (let round = 0; round < 400; round += 1) {
    const text = Array.from(
      { length: 3 },
      (_, n) => `[profiles.rules.r${n}]\naction = "block"\nmatch = '''${randomCondition(random)}'''\n`,
    ).join("");
    const snapshot = snapshotOf(text);
    const event = randomEvent(random, random.pick(EVENT_TYPE_NAMES));
    let lean = event;
    for (const path of FIELD_PATHS.filter((name) => CARRIED.get(event.type)?.has(name) === true)) {
      if (path === "event.type" || snapshot.reads(path as FieldPath) || !event.facts.has(path)) continue;
      lean = withoutField(lean, path);
      left += 1;
    }
    expect(decide(snapshot, lean)).toEqual(decide(snapshot, event));
  }
  expect(left).toBeGreaterThan(1_000);
});

/** Without the field, and without the names above it that then have nothing below them. */
function withoutField(event: SecurityEvent, path: string): SecurityEvent {
  const facts = new Map(without(event, path).facts);
  for (let dot = path.lastIndexOf("."); dot > 0; dot = path.lastIndexOf(".", dot - 1)) {
    const struct = path.slice(0, dot);
    if (![...facts.keys()].some((name) => name.startsWith(`${struct}.`))) facts.delete(struct);
  }
  return new SecurityEvent(event.type, event.identity, facts);
}
