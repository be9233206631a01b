import { expect, test } from "vitest";
import { allowRuleFor } from "./allow-rule.ts";
import { compileCondition, isCondition } from "./cel/condition.ts";
import { NoValue } from "./cel/outcome.ts";
import { decide } from "./decide.ts";
import { applyEdits } from "./edit.ts";
import { type EventFields, type SecurityEvent, securityEvent } from "./event/event.ts";
import { CARRIED, type EventType } from "./event/event-table.ts";
import { fieldRow } from "./event/field-table.ts";
import { emptyLayer } from "./layer.ts";
import { patchLayerText } from "./layer-text.ts";
import { compileSnapshot, type PolicySnapshot } from "./snapshot.ts";
import { layerOf, sha256, snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { randomEvent, randomValue } from "./testing/random-event.ts";

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

const VM = { "vm.id": "vm_a", "vm.name": "dev" };
const NO_LABEL = "!has(label.confidentiality) && !has(label.integrity) && !has(label.sources)";

test.each<[string, SecurityEvent, string]>([
  [
    "a job",
    exec("git push"),
    `event.type == "process.exec" && !has(vm.id) && process.command == "git push" && ${NO_LABEL} && !has(process.name) && !has(process.exec.path) && !has(process.exec.user) && !has(process.exec.cwd) && !has(process.exec.env_names) && !has(process.exec.has_stdin)`,
  ],
  [
    "a job of a program in a VM, as a user, in a folder",
    exec("make", {
      ...VM,
      "process.exec.id": "job_1",
      "process.exec.path": "/bin/make",
      "process.exec.user": "root",
      "process.exec.cwd": "/w",
      "process.exec.env_names": [],
      "process.exec.has_stdin": false,
    }),
    `event.type == "process.exec" && vm.id == "vm_a" && process.command == "make" && process.exec.path == "/bin/make" && process.exec.user == "root" && process.exec.cwd == "/w" && process.exec.env_names == [] && !process.exec.has_stdin && ${NO_LABEL} && !has(process.name)`,
  ],
  [
    "a file that goes out",
    eventOf("file.export", { ...VM, "file.export.path": "/a", "file.export.size": 7 }),
    `event.type == "file.export" && vm.id == "vm_a" && file.export.path == "/a" && file.export.size == 7 && ${NO_LABEL} && !has(process.name) && !has(file.export.is_tree) && !has(file.export.is_whole) && !has(file.export.offset)`,
  ],
  [
    "a file act inside",
    eventOf("file.event", { ...VM, "file.delete.path": "/a", "file.delete.is_tree": false }),
    `event.type == "file.event" && vm.id == "vm_a" && file.delete.path == "/a" && !file.delete.is_tree && ${NO_LABEL} && !has(process.name) && !has(file.read.path) && !has(file.create.path) && !has(file.create.is_tree) && !has(file.write.path)`,
  ],
  [
    "an act on a VM",
    eventOf("vm.lifecycle", { ...VM, "vm.lifecycle.action": "rename", "vm.lifecycle.name": "prod" }),
    `event.type == "vm.lifecycle" && vm.id == "vm_a" && vm.lifecycle.action == "rename" && vm.lifecycle.name == "prod" && ${NO_LABEL} && !has(process.name) && !has(vm.lifecycle.requester)`,
  ],
  [
    "a call",
    call(
      { path: "/x", n: 1, "odd key": [1, 2], in: true, deep: { a: 0.5, b: { c: [] } } },
      {
        "mcp.server.external": true,
        "mcp.server.pinned": true,
        "mcp.request.id": "7",
        "label.confidentiality": "public",
        "label.integrity": "untrusted",
      },
    ),
    'event.type == "mcp.tool_call" && !has(vm.id) && mcp.server.name == "s" && mcp.server.external && mcp.server.pinned && mcp.tool_call.name == "t" && size(mcp.request.arguments) == 5 && mcp.request.arguments.path == "/x" && mcp.request.arguments.n == 1 && mcp.request.arguments["odd key"] == [1, 2] && mcp.request.arguments["in"] == true && has(mcp.request.arguments.deep.a) && size(mcp.request.arguments.deep) == 2 && mcp.request.arguments.deep.a == 0.5 && has(mcp.request.arguments.deep.b.c) && size(mcp.request.arguments.deep.b) == 1 && mcp.request.arguments.deep.b.c == [] && label.confidentiality == "public" && label.integrity in ["trusted", "user", "untrusted"] && !has(mcp.method) && !has(mcp.transport) && !has(mcp.tool_list) && !has(mcp.request.method) && !has(mcp.request.uri) && !has(mcp.request.prompt) && !has(mcp.response.content) && !has(mcp.response.structured) && !has(mcp.response.is_error) && !has(label.sources) && !has(process.name)',
  ],
  [
    "a call without arguments",
    call(undefined),
    `event.type == "mcp.tool_call" && !has(vm.id) && mcp.server.name == "s" && mcp.tool_call.name == "t"`,
  ],
])("%s is allowed again, exactly, once the rule is written", (_, event, match) => {
  const written = matchFor(event);
  expect(parts(written)).toEqual(expect.arrayContaining(parts(match)));
  const rule = allowFor(event);
  expect(rule).toMatchObject({
    edit: {
      kind: "put_rule",
      id: `profiles.rules.allow-${sha256(written).slice(0, 12)}`,
      fields: { action: "allow", priority: 499, reason: "approved for always; profiles.rules.ask asked" },
    },
  });
  expect(decide(asking, event).action).toBe("ask");
  // It makes nobody look into files.
  expect(withRuleFor(event).reads("file.content")).toBe(false);
  expect(decide(withRuleFor(event), event)).toMatchObject({
    action: "allow",
    rule_id: rule.kind === "edit" ? rule.edit.id : "",
  });
});

const parts = (match: string) => match.split(" && ").sort();
const rename = (name: string, more: EventFields = VM) =>
  eventOf("vm.lifecycle", { ...more, "vm.lifecycle.action": "rename", "vm.lifecycle.name": name });
const removal = (more: EventFields) =>
  eventOf("file.event", { ...VM, "file.delete.path": "/a.txt", "file.delete.is_tree": false, ...more });
const shell = (more: EventFields) =>
  exec("bash -s", { ...VM, "process.exec.env_names": [], "process.exec.has_stdin": false, ...more });

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
  ["the command in another VM", shell({}), shell({ "vm.id": "vm_b" })],
  ["the command in another VM of the same name", shell({}), shell({ "vm.id": "vm_b", "vm.name": "dev" })],
  ["the command outside of any VM", shell({}), exec("bash -s")],
  ["the command in a VM", exec("bash -s"), exec("bash -s", VM)],
  ["the command with input", shell({}), shell({ "process.exec.has_stdin": true })],
  ["the command with an environment", shell({}), shell({ "process.exec.env_names": ["LD_PRELOAD"] })],
  [
    "the command with another environment",
    shell({ "process.exec.env_names": ["A"] }),
    shell({ "process.exec.env_names": ["A", "B"] }),
  ],
  ["the words as one program", exec("make"), exec("make", { "process.exec.path": "/bin/make" })],
  ["another name", rename("a"), rename("prod")],
  [
    "a name where none was shown",
    eventOf("vm.lifecycle", { ...VM, "vm.lifecycle.action": "persist" }),
    eventOf("vm.lifecycle", { ...VM, "vm.lifecycle.action": "persist", "vm.lifecycle.name": "prod" }),
  ],
  ["a rename of another VM", rename("a"), rename("a", { ...VM, "vm.id": "vm_b" })],
  ["a move of a file that may be deleted", removal({}), removal({ "file.create.path": "/elsewhere" })],
  ["a tree where a file was shown", removal({}), removal({ "file.delete.is_tree": true })],
  ["a file in another VM", removal({}), removal({ "vm.id": "vm_b" })],
  [
    "another file",
    eventOf("file.export", { "file.export.path": "/a" }),
    eventOf("file.export", { "file.export.path": "/b" }),
  ],
  [
    "a window of the file",
    eventOf("file.export", { "file.export.path": "/a", "file.export.is_whole": true }),
    eventOf("file.export", {
      "file.export.path": "/a",
      "file.export.is_whole": false,
      "file.export.offset": 9,
    }),
  ],
  [
    "another act on the file",
    eventOf("file.event", { "file.read.path": "/a" }),
    eventOf("file.event", { "file.delete.path": "/a" }),
  ],
  ["other arguments", call({ a: 1 }), call({ a: 1, b: 2 })],
  [
    "a call of a server that is not ours",
    call({}),
    call({}, { "mcp.server.external": true, "mcp.server.pinned": true }),
  ],
  [
    "a tainted call",
    call({ a: 1 }),
    call({ a: 1 }, { "label.confidentiality": "secret", "label.integrity": "user" }),
  ],
  ["a tainted command", exec("ls"), exec("ls", { "label.confidentiality": "secret" })],
  [
    "a changed tool",
    call({}, { "mcp.server.external": true, "mcp.server.pinned": true }),
    call({}, { "mcp.server.external": true, "mcp.server.pinned": false }),
  ],
])("%s still asks", (_, approved, other) => {
  const snapshot = withRuleFor(approved);
  expect(decide(snapshot, approved).action).toBe("allow");
  expect(decide(snapshot, other).action).toBe("ask");
});

test("the rule holds for the act alone, and another value of a field that it could have still asks", () => {
  const random = new Random(83);
  let compared = 0;
  for (let round = 0; round < 400; round += 1) {
    const type = random.pick([
      "process.exec",
      "file.export",
      "file.event",
      "vm.lifecycle",
      "mcp.tool_call",
    ] as const);
    const base = randomEvent(random, type);
    const event = securityEvent(type, ID, { ...(base.toJSON().fields as EventFields), ...VM });
    const rule = allowFor(event);
    if (rule.kind === "none") continue;
    const condition = compileCondition(String(rule.edit.fields.match));
    if (!isCondition(condition)) throw new Error(condition.message);
    expect(condition.evaluate(event.facts)).toBe(true);
    for (const path of CARRIED.get(type) ?? []) {
      // What each try has anew, what the id says, what is made of other fields, what is only looked at, and labels.
      if (
        /\.id$|^vm\.(name|image|labels)|\.(valid|truncated|name|ext)$|content$|size$|mime_type$|^event|^label/.test(
          path,
        )
      ) {
        if (!/^(vm\.(id|lifecycle\.name)|mcp\.(server|tool_call)\.name|process\.name)$/.test(path)) continue;
      }
      for (const fields of others(random, event, path)) {
        const other = changed(type, fields);
        if (other === undefined || valueAt(other, path) === valueAt(event, path)) continue;
        compared += 1;
        expect(condition.evaluate(other.facts), `${path} of ${JSON.stringify([event, other])}`).not.toBe(
          true,
        );
      }
    }
  }
  expect(compared).toBeGreaterThan(1_000);
});

const valueAt = (event: SecurityEvent, path: string) => JSON.stringify(event.toJSON().fields[path]);

/** Without the field, and with another value. */
function others(random: Random, event: SecurityEvent, path: string): Record<string, unknown>[] {
  const { fields } = event.toJSON();
  const { [path]: _, ...rest } = fields;
  const row = fieldRow(path);
  return row === undefined ? [rest] : [rest, { ...fields, [path]: randomValue(random, row) }];
}

/** Made again, so that what follows from a field follows. */
function changed(type: EventType, fields: Record<string, unknown>): SecurityEvent | undefined {
  const given = Object.entries(fields).filter(
    ([path]) => !/\.(ext|valid|truncated)$|^file\.[a-z]+\.name$|^file\.content$/.test(path),
  );
  try {
    return securityEvent(type, ID, Object.fromEntries(given) as EventFields);
  } catch {
    // Without what it needs it is no event, and refused.
    return undefined;
  }
}

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
    "give it priority = 20, or change its match",
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
    'a field of "process" was cut',
  ],
  [
    "a command that is too long",
    exec("x".repeat(5_000)),
    asking,
    "no rule can name this act: it is longer than 4096 characters",
  ],
  ["a command that held a secret", exec("login [redacted]"), asking, "process.command held a secret"],
  ["a command with half a character", exec("\ud800"), asking, "half a character"],
  [
    "arguments that held a secret",
    call({ a: ["[redacted]"] }),
    asking,
    "mcp.request.arguments held a secret",
  ],
  ["arguments that were cut", call({ a: 1 }, { "mcp.truncated": true }), asking, 'a field of "mcp" was cut'],
  ["arguments with null", call({ a: null }), asking, "it holds null"],
  [
    "arguments with a mixed list",
    call({ a: [1, "x"] }),
    asking,
    "it holds a list of several types or of maps",
  ],
  [
    "arguments with a list of maps",
    call({ a: [{ b: 1 }] }),
    asking,
    "it holds a list of several types or of maps",
  ],
  ["arguments with an empty map", call({ a: {} }), asking, "an inner map without a key that is a name"],
  [
    "a tool that changed",
    call({}, { "mcp.server.external": true, "mcp.server.pinned": false }),
    asking,
    "approve its definition instead",
  ],
  [
    "a VM without a name",
    exec("ls", { "vm.id": "vm_a" }),
    asking,
    "its VM has no name, so it is gone when it stops; approve it for the VM",
  ],
  [
    "an import, of which no field has all the bytes",
    eventOf("file.import", { ...VM, "file.import.path": "/a" }),
    asking,
    "no rule can name exactly one file.import: no field of it has all the bytes",
  ],
  [
    "a setting, of which no field has the value",
    eventOf("settings.change", { "settings.key": "limits.idle_secs", "settings.source": "user" }),
    asking,
    "no field of it has the new value",
  ],
  [
    "an export of content that a rule reads",
    eventOf("file.export", { ...VM, "file.export.path": "/a", "file.export.content": "x" }),
    asking,
    "a rule would have to hold its file.export.content",
  ],
  ...(["create", "delete", "purge"] as const).map(
    (action): [string, SecurityEvent, PolicySnapshot, string] => [
      `${action}, which is done once to a VM`,
      eventOf("vm.lifecycle", { ...VM, "vm.lifecycle.action": action }),
      asking,
      action === "create" ? "the next one is another VM" : "afterwards there is no such VM",
    ],
  ),
  [
    "what was not understood",
    exec("ls", { "process.valid": false }),
    asking,
    '"process" was not understood whole',
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
