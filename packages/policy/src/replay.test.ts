import { expect, test } from "vitest";
import { type Decision, decide } from "./decide.ts";
import { type EventFields, SecurityEvent, type StoredEvent, securityEvent } from "./event/event.ts";
import { EVENT_TYPE_NAMES } from "./event/event-table.ts";
import { fieldRow } from "./event/field-table.ts";
import { takeValue } from "./event/field-value.ts";
import type { Replay } from "./replay.ts";
import { replay } from "./replay.ts";
import { snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { aboutField, randomCondition } from "./testing/random-condition.ts";
import { randomEvent, randomValue } from "./testing/random-event.ts";

const ID = { event_id: "0123456789ab" };
const SECRET = `[credential:blake3:${"0a".repeat(32)}]`;
const stored = (event: SecurityEvent): StoredEvent => JSON.parse(JSON.stringify(event));
const exec = (command: string, more: EventFields = {}) =>
  stored(securityEvent("process.exec", ID, { "process.command": command, ...more }));
const post = (body: string, more: EventFields = {}) =>
  stored(
    securityEvent("http.request", ID, {
      "http.host": "x.test",
      "http.method": "POST",
      "http.body": body,
      ...more,
    }),
  );
const rule = (name: string, action: string, match: string, more = "") =>
  `[profiles.rules.${name}]\naction = "${action}"\nmatch = '''${match}'''\n${more}\n`;
const wasOf = ({ action, rule_id, changes }: Decision) => ({ action, rule_id, changes });
const ALLOWED = { action: "allow", rule_id: "posture.developer" } as const;
const ASKED = { action: "ask", rule_id: "posture.developer" } as const;

test("what happened is decided again: the same, or otherwise with both decisions and the reason", () => {
  const was = wasOf(decide(snapshotOf(""), securityEvent("process.exec", ID, { "process.command": "ls" })));
  expect(replay(exec("ls"), was, snapshotOf(""))).toMatchObject({ kind: "same", was, now: was });
  const strict = snapshotOf(rule("no-ls", "block", 'process.command == "ls"', 'reason = "no lists"'));
  expect(replay(exec("ls"), was, strict)).toEqual({
    kind: "different",
    was,
    now: decide(strict, securityEvent("process.exec", ID, { "process.command": "ls" })),
    why: "allow by posture.developer would be block by profiles.rules.no-ls: no lists",
  });
});

test("another rule with the same answer is the same, another change of the text is not", () => {
  const by = snapshotOf(rule("yes", "allow", "true") + rule("clean", "rewrite", "true"));
  expect(replay(exec("ls"), ALLOWED, by).kind).toBe("same");
  expect(replay(exec("ls"), { ...ALLOWED, changes: ["profiles.rules.clean"] }, by).kind).toBe("same");
  expect(replay(exec("ls"), { ...ALLOWED, changes: [] }, by)).toMatchObject({
    kind: "different",
    why: "allow as before, but changed by profiles.rules.clean instead of nothing",
  });
});

const BODY = rule("body", "block", 'http.body.contains("x")');
test.each<[string, unknown, typeof ALLOWED | typeof ASKED, string, Replay["kind"]]>([
  [
    "a redacted text that a rule reads",
    exec(`login ${SECRET}`),
    ALLOWED,
    rule("a", "block", 'process.command.contains("hunter2")'),
    "undecidable",
  ],
  [
    "the other marker",
    exec("login [redacted]"),
    ALLOWED,
    rule("a", "block", 'process.command.contains("x")'),
    "undecidable",
  ],
  [
    "a marker that is none",
    exec("login [credential:blake3:12]"),
    ALLOWED,
    rule("a", "block", 'process.command.contains("x")'),
    "same",
  ],
  [
    "a redacted text that no rule reads",
    exec(SECRET),
    ALLOWED,
    rule("a", "block", 'process.name == "x"'),
    "same",
  ],
  [
    "a rule that only asks whether it was there",
    exec(SECRET),
    ALLOWED,
    rule("a", "block", "has(process.command)"),
    "different",
  ],
  [
    "a rule of another type of event",
    exec(SECRET),
    ALLOWED,
    rule("a", "block", 'event.type == "process.exec_complete" && process.command == "x"'),
    "same",
  ],
  [
    "a rule that something else keeps from matching",
    exec(SECRET),
    ALLOWED,
    rule("a", "block", 'process.name == "sh" && process.command == "x"'),
    "same",
  ],
  [
    "a rule that something else makes match",
    exec(SECRET, { "process.name": "sh" }),
    ALLOWED,
    rule("a", "block", 'process.name == "sh" || process.command == "x"'),
    "different",
  ],
  [
    "a rule after the one that decides",
    exec(SECRET),
    ALLOWED,
    rule("a", "block", "true") + rule("b", "allow", 'process.command == "x"', "priority = 20"),
    "different",
  ],
  [
    "a rule before the one that decides",
    exec(SECRET),
    ALLOWED,
    rule("a", "block", "true", "priority = 20") + rule("b", "allow", 'process.command == "x"'),
    "undecidable",
  ],
  [
    "a milder rule beside the one that decides",
    exec(SECRET),
    ALLOWED,
    rule("a", "block", "true") + rule("b", "allow", 'process.command == "x"'),
    "different",
  ],
  [
    "a rule before that blocks as well",
    exec(SECRET),
    ALLOWED,
    rule("a", "block", "true", "priority = 20") + rule("b", "block", 'process.command == "x"'),
    "different",
  ],
  [
    "a rule that would change the text",
    exec(SECRET),
    ALLOWED,
    rule("a", "allow", "true") + rule("b", "rewrite", 'process.command == "x"', "priority = 20"),
    "undecidable",
  ],
  ["a cut body that a rule reads", post("aaa", { "http.truncated": true }), ASKED, BODY, "undecidable"],
  ["a whole body", post("aaa"), ASKED, BODY, "same"],
  [
    "a cut body beside a field that cannot be cut",
    post("aaa", { "http.truncated": true }),
    ASKED,
    rule("a", "block", 'http.method == "PUT"'),
    "same",
  ],
  [
    "the flag itself, which is known",
    post("aaa", { "http.truncated": true }),
    ASKED,
    rule("a", "block", "http.truncated"),
    "different",
  ],
  [
    "a secret in a header",
    post("", { "http.headers": { authorization: `Bearer ${SECRET}` } }),
    ASKED,
    rule("a", "block", 'http.headers["authorization"].startsWith("Bearer ")'),
    "undecidable",
  ],
  [
    "a secret deep in arguments",
    stored(
      securityEvent("mcp.tool_call", ID, {
        "mcp.server.name": "s",
        "mcp.tool_call.name": "t",
        "mcp.request.arguments": { list: [{ key: SECRET }] },
      }),
    ),
    ASKED,
    rule("a", "block", "has(mcp.request.arguments.password)"),
    "undecidable",
  ],
  [
    "a secret in the name of a key",
    stored(
      securityEvent("mcp.tool_call", ID, {
        "mcp.server.name": "s",
        "mcp.tool_call.name": "t",
        "mcp.request.arguments": { [SECRET]: 1 },
      }),
    ),
    ASKED,
    rule("a", "block", "has(mcp.request.arguments.password)"),
    "undecidable",
  ],
  [
    "a field that is made of a hidden one",
    stored(securityEvent("file.import", ID, { "file.import.path": `/${SECRET}` })),
    ALLOWED,
    rule("a", "block", 'file.import.ext == "env"'),
    "undecidable",
  ],
  [
    "a rule that faults, unless what is hidden lacks a key",
    stored(
      securityEvent("mcp.tool_result", ID, {
        "mcp.server.name": "s",
        "mcp.tool_call.name": "t",
        "mcp.response.structured": { n: 1 },
        "mcp.request.arguments": { k: SECRET },
      }),
    ),
    ALLOWED,
    rule("a", "allow", "mcp.response.structured.n.x == mcp.request.arguments.k"),
    "undecidable",
  ],
  [
    "an event that is none today",
    { ...exec("ls"), fields: { "process.cmd": "ls" } },
    ALLOWED,
    "",
    "undecidable",
  ],
  ["an event that is nothing", null, ALLOWED, "", "undecidable"],
])("%s", (_, event, was, rules, kind) => {
  expect(replay(event, was, snapshotOf(rules)).kind).toBe(kind);
});

test("an answer that cannot be given names the rules and the fields", () => {
  const rules =
    rule("a", "block", 'process.command.contains("x")') + rule("b", "ask", 'process.command == "y"');
  expect(replay(exec(SECRET), ALLOWED, snapshotOf(rules))).toEqual({
    kind: "undecidable",
    why: 'rule "profiles.rules.a" and 1 more would have to read process.command, which was cut or redacted',
    fields: ["process.command"],
    rules: ["profiles.rules.a", "profiles.rules.b"],
  });
  expect(replay({ type: "x" }, ALLOWED, snapshotOf(""))).toMatchObject({
    why: 'Cannot judge event "x": its type is unknown',
  });
});

test("whoever stored the event can name what it hid without a trace", () => {
  const rules = snapshotOf(rule("a", "block", 'process.command == "x"'));
  expect(replay(exec("ls"), ALLOWED, rules).kind).toBe("same");
  const isHidden = (path: string) => path === "process.command";
  expect(replay(exec("ls"), ALLOWED, rules, { isHidden }).kind).toBe("undecidable");
});

test("an answer that is given holds for whatever was hidden", () => {
  const random = new Random(71);
  const counts = { same: 0, different: 0, undecidable: 0 };
  for (let round = 0; round < 1_000; round += 1) {
    const event = randomEvent(random, random.pick(EVENT_TYPE_NAMES));
    const paths = [...event.facts.keys()].filter(
      (path) => fieldRow(path) !== undefined && path !== "event.type",
    );
    const hidden = new Set(random.some(paths, 3));
    // Name and extension are made anew of the path, so the path stands for them.
    for (const path of hidden) if (/^file\./.test(path)) hidden.delete(path);
    const about = () =>
      random.chance(2) || paths.length === 0
        ? randomCondition(random, {}, 2)
        : aboutField(random, random.pick(paths));
    const snapshot = snapshotOf(
      Array.from({ length: 6 }, (_, n) =>
        rule(
          `r${n}`,
          random.pick(["allow", "ask", "block", "block", "rewrite"]),
          `${about()} ${random.pick(["&&", "||"])} ${about()}`,
          `priority = ${10 + random.below(3)}`,
        ),
      ).join(""),
    );
    const was = { action: "allow", rule_id: "x", changes: [] } as const;
    const answer = replay(stored(event), was, snapshot, { isHidden: (path) => hidden.has(path) });
    counts[answer.kind] += 1;
    if (answer.kind === "undecidable") continue;
    for (let count = 0; count < 8; count += 1) {
      const now = decide(snapshot, withOther(random, event, hidden));
      const seen = JSON.stringify([
        event,
        [...hidden],
        snapshot.rules.map(({ condition }) => condition.source),
      ]);
      expect(now.action, seen).toBe(answer.now.action);
      if (now.action !== "block") expect(now.changes, seen).toEqual(answer.now.changes);
    }
  }
  expect(Math.min(...Object.values(counts)), JSON.stringify(counts)).toBeGreaterThan(50);
});

/** The event with other values in the given fields. */
function withOther(random: Random, event: SecurityEvent, hidden: ReadonlySet<string>): SecurityEvent {
  const facts = new Map(event.facts);
  for (const path of hidden) {
    const row = fieldRow(path);
    const fresh = row === undefined ? undefined : takeValue(row, randomValue(random, row));
    if (fresh !== undefined && "value" in fresh) facts.set(path, fresh.value);
  }
  return new SecurityEvent(event.type, event.identity, facts);
}
