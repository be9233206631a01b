import { expect, test } from "vitest";
import { decide, decideUnindexed } from "./decide.ts";
import { eventFromJson, securityEvent } from "./event/event.ts";
import { EVENT_TYPE_NAMES } from "./event/event-table.ts";
import { renderDecision } from "./explain.ts";
import { DECISIONS } from "./rule.ts";
import { layerOf, snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { randomCondition } from "./testing/random-condition.ts";
import { randomEvent } from "./testing/random-event.ts";

const ID = { event_id: "0123456789ab" };
const exec = (command: string) => securityEvent("process.exec", ID, { "process.command": command });

function rules(...rows: readonly [name: string, action: string, match: string, more?: string][]): string {
  return rows
    .map(
      ([name, action, match, more]) =>
        `[profiles.rules.${name}]\naction = "${action}"\nmatch = '''${match}'''\n${more ?? ""}\n`,
    )
    .join("\n");
}

test("a rule blocks one command and the rest go on, with the reason for the caller", () => {
  const snapshot = snapshotOf(
    rules(["no-rm", "block", 'process.command.matches("rm -rf /")', 'reason = "this removes everything"']),
  );
  expect(decide(snapshot, exec("rm -rf / --now"))).toMatchObject({
    action: "block",
    rule_id: "profiles.rules.no-rm",
    reason: "this removes everything",
    explanation: { why: "only_one" },
  });
  expect(decide(snapshot, exec("ls"))).toMatchObject({ action: "allow", rule_id: "posture.developer" });
});

test("lower priorities come first, and the corporation's come before all", () => {
  const user = rules(["late", "block", "true", "priority = 20"], ["soon", "ask", "true", "priority = 11"]);
  expect(decide(snapshotOf(user), exec("x"))).toMatchObject({
    action: "ask",
    rule_id: "profiles.rules.soon",
    explanation: { why: "lower_priority" },
  });
  const corp = '[corp.rules.all]\naction = "allow"\nmatch = "true"\n';
  expect(decide(snapshotOf(user, corp), exec("x"))).toMatchObject({
    action: "allow",
    rule_id: "corp.rules.all",
  });
});

test("at one priority the stricter wins whatever the ids are, and among equals the first id", () => {
  const stricter = decide(
    snapshotOf(rules(["a", "allow", "true"], ["b", "block", "true"], ["c", "ask", "true"])),
    exec("x"),
  );
  expect(stricter).toMatchObject({
    action: "block",
    rule_id: "profiles.rules.b",
    explanation: { why: "stricter" },
  });
  const equals = decide(snapshotOf(rules(["z", "ask", "true"], ["y", "ask", "true"])), exec("x"));
  expect(equals).toMatchObject({ rule_id: "profiles.rules.y", explanation: { why: "earlier_id" } });
});

test("a level rides on any rule that matched, and the gravest counts", () => {
  const text = rules(
    ["a", "allow", "true", 'detection_level = "low"'],
    ["b", "rewrite", "true", 'detection_level = "critical"'],
    ["c", "block", "false", ""],
    ["d", "postprocess", "true", ""],
    ["off", "block", "true", "enabled = false"],
  );
  const decision = decide(snapshotOf(text), exec("x"));
  expect(decision).toMatchObject({ action: "allow", rule_id: "profiles.rules.a", detection: "critical" });
  expect(decision.changes).toEqual(["profiles.rules.b", "profiles.rules.d"]);
});

test("a rule that cannot be computed blocks, whatever its action is", () => {
  const call = securityEvent("mcp.tool_call", ID, {
    "mcp.server.name": "s",
    "mcp.tool_call.name": "write",
    "mcp.request.arguments": { path: ["/etc"] },
  });
  const text = rules(["paths", "allow", 'mcp.request.arguments.path.startsWith("/home/")']);
  const decision = decide(snapshotOf(text), call);
  expect(decision).toMatchObject({ action: "block", rule_id: "profiles.rules.paths" });
  expect(decision.reason).toContain("cannot be evaluated");
});

test("an explanation names every rule that matched, and why one won", () => {
  const snapshot = snapshotOf(
    rules(["no-posts", "block", 'http.method == "POST"', 'reason = "reading only"']),
  );
  const event = securityEvent("http.request", ID, { "http.host": "api.openai.com", "http.method": "POST" });
  const decision = decide(snapshot, event);
  expect(decision.explanation.matched.map(({ rule_id }) => rule_id)).toEqual([
    "profiles.rules.no-posts",
    "default.model_providers",
  ]);
  expect(renderDecision(decision)).toMatchInlineSnapshot(`
    "block: reading only
      decided by   profiles.rules.no-posts (its priority comes first)
      matched      profiles.rules.no-posts (priority 10): block
                   default.model_providers (priority 1001): allow"
  `);
});

test("the dry run of a stored event is the decision, for every event type and random rules", () => {
  const random = new Random(41);
  for (let round = 0; round < 12; round += 1) {
    const snapshot = snapshotOf(randomRules(random, 40));
    for (const type of EVENT_TYPE_NAMES) {
      for (let count = 0; count < 5; count += 1) {
        const event = randomEvent(random, type);
        const live = decide(snapshot, event);
        expect(decide(snapshot, eventFromJson(JSON.parse(JSON.stringify(event))))).toEqual(live);
      }
    }
  }
});

test("the index leaves no rule out: it decides as if every rule were evaluated", () => {
  const random = new Random(42);
  let byRules = 0;
  for (let round = 0; round < 40; round += 1) {
    const snapshot = snapshotOf(randomRules(random, 60));
    for (let count = 0; count < 60; count += 1) {
      const event = randomEvent(random, random.pick(EVENT_TYPE_NAMES));
      const decision = decide(snapshot, event);
      expect(decision, JSON.stringify(event)).toEqual(decideUnindexed(snapshot, event));
      if (decision.explanation.matched.length > 0) byRules += 1;
    }
  }
  expect(byRules).toBeGreaterThan(500);
});

test("the stricter wins at equal priority, and no rule of a later priority changes it", () => {
  const random = new Random(43);
  for (let round = 0; round < 200; round += 1) {
    const snapshot = snapshotOf(randomRules(random, 12));
    const event = randomEvent(random, random.pick(EVENT_TYPE_NAMES));
    const { action, explanation } = decide(snapshot, event);
    const deciding = explanation.matched.filter(
      (rule) => rule.fault !== undefined || DECISIONS.includes(rule.action as never),
    );
    const first = deciding.filter(({ priority }) => priority === deciding[0]?.priority);
    const strictest = Math.max(
      ...first.map((rule) => (rule.fault === undefined ? DECISIONS.indexOf(rule.action as never) : 2)),
    );
    if (first.length > 0) expect(DECISIONS.indexOf(action)).toBe(strictest);
    else expect(explanation.why).toBe("no_rule");
  }
});

function randomRules(random: Random, count: number): string {
  return Array.from({ length: count }, (_, n) => {
    const action = random.pick(["allow", "ask", "block", "rewrite"]);
    return `[profiles.rules.r${n}]\naction = "${action}"\nmatch = '''${randomCondition(random)}'''\npriority = ${10 + random.below(4)}\n`;
  }).join("\n");
}

test("a snapshot cannot be changed, and its digest follows what it decides and nothing else", () => {
  const text = rules(["a", "block", 'http.host == "x.test"']);
  const snapshot = snapshotOf(text);
  expect(() => Object.assign(snapshot, { preset: "open" })).toThrow();
  expect(() => (snapshot.rules as unknown[]).push(1)).toThrow();
  const spaced = rules(["a", "block", `http.host   ==\n 'x.test'`.replaceAll("'", '"')]);
  expect(snapshotOf(`# a remark\n${spaced}`).digest).toBe(snapshot.digest);
  for (const other of [
    rules(["a", "ask", 'http.host == "x.test"']),
    rules(["b", "block", 'http.host == "x.test"']),
    rules(["a", "block", 'http.host == "y.test"']),
    rules(["a", "block", 'http.host == "x.test"', "priority = 11"]),
    `${text}\n[profiles]\npreset = "open"\n`,
  ]) {
    expect(snapshotOf(other).digest).not.toBe(snapshot.digest);
  }
});

test("the layers of other authors are not touched by compiling", () => {
  const layer = layerOf("user", rules(["a", "block", "true"]));
  expect(Object.isFrozen(layer)).toBe(true);
  expect(Object.isFrozen(layer.rules[0])).toBe(true);
});
