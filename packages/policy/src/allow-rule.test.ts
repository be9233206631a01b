import { expect, test } from "vitest";
import { allowRuleFor } from "./allow-rule.ts";
import { compileCondition, isCondition } from "./cel/condition.ts";
import { NoValue } from "./cel/outcome.ts";
import { decide } from "./decide.ts";
import { applyEdits } from "./edit.ts";
import { type EventFields, type SecurityEvent, securityEvent } from "./event/event.ts";
import type { EventType } from "./event/event-table.ts";
import { emptyLayer } from "./layer.ts";
import { patchLayerText } from "./layer-text.ts";
import { compileSnapshot, type PolicySnapshot } from "./snapshot.ts";
import { layerOf, sha256, snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";

const ID = { event_id: "0123456789ab" };
const eventOf = (type: EventType, fields: EventFields) => securityEvent(type, ID, fields);
const exec = (command: string, more: EventFields = {}) =>
  eventOf("process.exec", { "process.command": command, ...more });
const call = (args: Record<string, unknown> | undefined, more: EventFields = {}) =>
  eventOf("mcp.tool_call", {
    "mcp.server.name": "s",
    "mcp.tool_call.name": "t",
    "mcp.request.arguments": args,
    ...more,
  });

const ASK = '[profiles.rules.ask]\naction = "ask"\nmatch = "true"\npriority = 500\n';
const asking = snapshotOf(ASK);
const allowFor = (event: SecurityEvent, snapshot = asking) =>
  allowRuleFor(event, decide(snapshot, event), sha256);

function matchFor(event: SecurityEvent, snapshot = asking): string {
  const rule = allowFor(event, snapshot);
  if (rule.kind === "none") throw new Error(rule.reason);
  return String(rule.edit.fields.match);
}

/** What is in force once the rule is written into the user's file and read again. */
function withRuleFor(event: SecurityEvent, userText = ASK): PolicySnapshot {
  const rule = allowFor(event, snapshotOf(userText));
  if (rule.kind === "none") throw new Error(rule.reason);
  const patched = patchLayerText(userText, { corp: emptyLayer("corp") }, [rule.edit]);
  if (patched.kind === "refused") throw new Error(JSON.stringify(patched.faults));
  return compileSnapshot({ user: layerOf("user", patched.value.text) }, sha256);
}

test.each<[string, SecurityEvent, string]>([
  ["a job", exec("git push"), 'event.type == "process.exec" && process.command == "git push"'],
  [
    "a job of a program, as a user, in a folder",
    exec("make", { "process.exec.path": "/bin/make", "process.exec.user": "root", "process.exec.cwd": "/w" }),
    'event.type == "process.exec" && process.command == "make" && process.exec.path == "/bin/make" && process.exec.user == "root" && process.exec.cwd == "/w"',
  ],
  [
    "a file from the host",
    eventOf("file.import", { "file.import.path": "/a", "file.content": "x" }),
    'event.type == "file.import" && file.import.path == "/a"',
  ],
  [
    "a cut file, whose path is whole",
    eventOf("file.export", { "file.export.path": "/a", "file.truncated": true }),
    'event.type == "file.export" && file.export.path == "/a"',
  ],
  [
    "a file act inside",
    eventOf("file.event", { "file.write.path": "/a" }),
    'event.type == "file.event" && file.write.path == "/a"',
  ],
  [
    "an act on a VM",
    eventOf("vm.lifecycle", { "vm.lifecycle.action": "purge", "vm.id": "v" }),
    'event.type == "vm.lifecycle" && vm.lifecycle.action == "purge"',
  ],
  [
    "a change of a setting",
    eventOf("settings.change", { "settings.key": "limits.idle_secs", "settings.source": "user" }),
    'event.type == "settings.change" && settings.key == "limits.idle_secs" && settings.source == "user"',
  ],
  [
    "a call",
    call(
      { path: "/x", n: 1, "odd key": [1, 2], in: true, deep: { a: 0.5, b: { c: [] } } },
      {
        "mcp.server.external": true,
        "mcp.server.pinned": true,
        "label.confidentiality": "public",
        "label.integrity": "untrusted",
      },
    ),
    'event.type == "mcp.tool_call" && mcp.server.name == "s" && mcp.tool_call.name == "t" && mcp.server.external && mcp.server.pinned && size(mcp.request.arguments) == 5 && mcp.request.arguments.path == "/x" && mcp.request.arguments.n == 1 && mcp.request.arguments["odd key"] == [1, 2] && mcp.request.arguments["in"] == true && has(mcp.request.arguments.deep.a) && size(mcp.request.arguments.deep) == 2 && mcp.request.arguments.deep.a == 0.5 && has(mcp.request.arguments.deep.b.c) && size(mcp.request.arguments.deep.b) == 1 && mcp.request.arguments.deep.b.c == [] && label.confidentiality == "public" && label.integrity == "untrusted"',
  ],
  [
    "a call without arguments",
    call(undefined),
    'event.type == "mcp.tool_call" && mcp.server.name == "s" && mcp.tool_call.name == "t" && !has(mcp.request.arguments) && !has(label.confidentiality) && !has(label.integrity)',
  ],
])("%s is allowed again, exactly, once the rule is written", (_, event, match) => {
  expect(matchFor(event)).toBe(match);
  const rule = allowFor(event);
  expect(rule).toMatchObject({
    edit: {
      kind: "put_rule",
      id: `profiles.rules.allow-${sha256(match).slice(0, 12)}`,
      fields: { action: "allow", priority: 499, reason: "approved for always; profiles.rules.ask asked" },
    },
  });
  expect(decide(asking, event).action).toBe("ask");
  expect(decide(withRuleFor(event), event)).toMatchObject({
    action: "allow",
    rule_id: rule.kind === "edit" ? rule.edit.id : "",
  });
});

test.each<[string, SecurityEvent, SecurityEvent]>([
  ["another command", exec("git push"), exec("git push --force")],
  [
    "another user",
    exec("make", { "process.exec.user": "user" }),
    exec("make", { "process.exec.user": "root" }),
  ],
  [
    "another folder",
    exec("rm -r .", { "process.exec.cwd": "/tmp/x" }),
    exec("rm -r .", { "process.exec.cwd": "/" }),
  ],
  [
    "another file",
    eventOf("file.export", { "file.export.path": "/a" }),
    eventOf("file.export", { "file.export.path": "/b" }),
  ],
  [
    "another act on the file",
    eventOf("file.event", { "file.read.path": "/a" }),
    eventOf("file.event", { "file.delete.path": "/a" }),
  ],
  ["other arguments", call({ a: 1 }), call({ a: 1, b: 2 })],
  [
    "a tainted call",
    call({ a: 1 }),
    call({ a: 1 }, { "label.confidentiality": "secret", "label.integrity": "user" }),
  ],
  [
    "a changed tool",
    call({}, { "mcp.server.external": true, "mcp.server.pinned": true }),
    call({}, { "mcp.server.external": true, "mcp.server.pinned": false }),
  ],
])("%s still asks", (_, approved, other) => {
  expect(decide(withRuleFor(approved), other).action).toBe("ask");
});

test.each<[string, SecurityEvent, PolicySnapshot, string]>([
  [
    "what was not asked",
    exec("ls"),
    snapshotOf(""),
    '"posture.developer" did not ask: its decision is allow',
  ],
  [
    "an ask of the corporation",
    exec("ls"),
    snapshotOf("", '[corp.rules.c]\naction = "ask"\nmatch = "true"\n'),
    '"corp.rules.c" is a rule of the corporation',
  ],
  [
    "an ask at the first priority",
    exec("ls"),
    snapshotOf(ASK.replace("500", "10")),
    "give it priority = 11 or more, or change its match",
  ],
  [
    "a request",
    eventOf("http.request", { "http.host": "x.test", "http.method": "GET" }),
    snapshotOf(""),
    "no rule can name exactly one http.request",
  ],
  [
    "an actuation, which is confirmed each time",
    eventOf("capsule.invoke", { "capsule.name": "c", "capsule.level": 4 }),
    snapshotOf(""),
    "no rule can name exactly one capsule.invoke",
  ],
  [
    "a command that was cut",
    exec("x", { "process.truncated": true }),
    asking,
    "process.command may have been cut",
  ],
  [
    "a command that is too long",
    exec("x".repeat(5_000)),
    asking,
    "no rule can name this act: it is longer than 4096 characters",
  ],
  ["a command that held a secret", exec("login [redacted]"), asking, "process.command held a secret"],
  ["a command with half a character", exec("\ud800"), asking, "half a character"],
  ["arguments that held a secret", call({ a: ["[redacted]"] }), asking, "the arguments held a secret"],
  ["arguments that were cut", call({ a: 1 }, { "mcp.truncated": true }), asking, "the arguments were cut"],
  ["arguments with null", call({ a: null }), asking, "they hold null"],
  [
    "arguments with a mixed list",
    call({ a: [1, "x"] }),
    asking,
    "they hold a list of several types or of maps",
  ],
  [
    "arguments with a list of maps",
    call({ a: [{ b: 1 }] }),
    asking,
    "they hold a list of several types or of maps",
  ],
  ["arguments with an empty map", call({ a: {} }), asking, "an inner map without a key that is a name"],
  [
    "a tool that changed",
    call({}, { "mcp.server.external": true, "mcp.server.pinned": false }),
    asking,
    "approve its definition instead",
  ],
  ["a file act without a file", eventOf("file.event", {}), asking, "does not say which file"],
])("%s is not allowed for always, and why", (_, event, snapshot, reason) => {
  expect(allowFor(event, snapshot)).toMatchObject({ kind: "none", reason: expect.stringContaining(reason) });
});

test("an ask of the posture or of a built-in rule is preceded by the last priority of the user", () => {
  const posture = { ...decide(asking, exec("ls")), rule_id: "posture.developer" };
  for (const rule_id of ["posture.developer", "default.actuation"]) {
    expect(allowRuleFor(exec("ls"), { ...posture, rule_id }, sha256)).toMatchObject({
      edit: { fields: { priority: 1000 } },
    });
  }
});

test("two approvals of one act write one rule", () => {
  const user = layerOf("user", ASK);
  const again = allowFor(exec("ls"), snapshotOf(ASK.replace("500", "400")));
  const first = allowFor(exec("ls"));
  if (first.kind === "none" || again.kind === "none") throw new Error("no rule");
  const edited = applyEdits({ user, corp: emptyLayer("corp") }, [first.edit, again.edit]);
  expect(edited.kind === "ok" && edited.value.rules.map(({ priority }) => priority)).toEqual([500, 399]);
});

const PIECES = [
  '"',
  "'",
  "\\",
  "\n",
  "\r",
  "\t",
  "\0",
  "\u007f",
  "\u0085",
  "\u2028",
  "\u202e",
  "é",
  "💥",
  "\u{e0001}",
  "\\n",
  "\\u0041",
  "$" + "{x}",
  "'''",
  '"""',
  "//",
  "#",
  "a",
  " ",
];

test("any text is written so that it means itself and nothing else, through TOML and CEL", () => {
  const random = new Random(81);
  for (let round = 0; round < 300; round += 1) {
    const text = Array.from({ length: random.below(12) }, () =>
      random.chance(4) ? String.fromCodePoint(random.below(0xd7ff)) : random.pick(PIECES),
    ).join("");
    const snapshot = withRuleFor(exec(text));
    expect(decide(snapshot, exec(text)).action, JSON.stringify(text)).toBe("allow");
    for (const other of [`${text} `, text.slice(1), text.replace("\\", "/"), text.normalize("NFD")]) {
      expect(decide(snapshot, exec(other)).action, JSON.stringify([text, other])).toBe(
        other === text ? "allow" : "ask",
      );
    }
    expect(matchFor(exec(text))).not.toMatch(/[\p{Cc}\p{Cf}]/u);
  }
});

function randomArguments(random: Random, depth = 0): unknown {
  switch (depth === 0 ? 0 : 1 + random.below(depth > 2 ? 4 : 6)) {
    case 1:
      return random.pick([0, 1, -5, 0.5, 1e21, -1.5e-7, 123456789012345680000]);
    case 2:
      return random.pick(["", "a", "1"]);
    case 3:
      return random.chance(2);
    case 4:
      return random.pick<unknown>([[], [1, 2], ["a"], [[1], [2]], [1, "a"], null, [null]]);
    default:
      return Object.fromEntries(
        random
          .some(["a", "b", "odd key", "in", "__proto__", "constructor"], 2)
          .map((key) => [key, randomArguments(random, depth + 1)]),
      );
  }
}

test("a rule for arguments matches those arguments alone, and can be computed for any others", () => {
  const random = new Random(82);
  let expressed = 0;
  for (let round = 0; round < 400; round += 1) {
    const args = randomArguments(random) as Record<string, unknown>;
    const rule = allowFor(call(args));
    if (rule.kind === "none") continue;
    expressed += 1;
    const condition = compileCondition(String(rule.edit.fields.match));
    if (!isCondition(condition)) throw new Error(condition.message);
    expect(condition.evaluate(call(args).facts), JSON.stringify(args)).toBe(true);
    for (let count = 0; count < 20; count += 1) {
      const other = random.chance(2)
        ? (randomArguments(random) as Record<string, unknown>)
        : { ...args, [random.pick(["a", "b"])]: randomArguments(random, 1) };
      const outcome = condition.evaluate(call(other).facts);
      const seen = JSON.stringify([args, other]);
      if (outcome instanceof NoValue) expect(outcome.fault, seen).toBeUndefined();
      expect(outcome === true, seen).toBe(canonical(args) === canonical(other));
    }
  }
  expect(expressed).toBeGreaterThan(100);
});

function canonical(value: unknown): string {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return JSON.stringify(value);
  return `map ${JSON.stringify(
    Object.entries(value)
      .map(([key, item]) => [key, canonical(item)])
      .sort(),
  )}`;
}
