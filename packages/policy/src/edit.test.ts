import { expect, test } from "vitest";
import { applyEdits, type PolicyEdit } from "./edit.ts";
import { emptyLayer, parseLayer } from "./layer.ts";
import { renderActivePolicy, renderLayer, ruleText } from "./render.ts";
import { ruleJson } from "./rule-json.ts";
import { mergeSettings } from "./settings.ts";
import { layerOf, snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { randomCondition } from "./testing/random-condition.ts";

const user = layerOf(
  "user",
  '[limits]\nidle_secs = 60\n[profiles.rules.a]\naction = "ask"\nmatch = "true"\n',
);
const corp = layerOf(
  "corp",
  '[limits]\nrunning_max = 4\n[corp.rules.c]\naction = "block"\nmatch = "false"\n',
);
const edit = (...edits: PolicyEdit[]) => applyEdits({ user, corp }, edits);

test("the corporation is above the user, the user above what is built in, and what it says is locked", () => {
  const merged = mergeSettings(
    new Map([
      ["limits.running_max", 2],
      ["limits.idle_secs", 60],
    ]),
    corp.settings,
  );
  expect(merged.values["limits.running_max"]).toBe(4);
  expect(merged.values["limits.idle_secs"]).toBe(60);
  expect(merged.values["asks.timeout_secs"]).toBe(300);
  expect([...merged.locked]).toEqual(["limits.running_max"]);
  expect(merged.sources.get("limits.running_max")).toBe("corp");
});

test("a batch of edits gives a new layer and leaves the old one as it was", () => {
  const edited = edit(
    { kind: "set", key: "profiles.preset", value: "open" },
    { kind: "reset", key: "limits.idle_secs" },
    {
      kind: "put_rule",
      id: "profiles.rules.b",
      fields: { action: "block", match: 'http.host == "x.test"', priority: 20 },
    },
    { kind: "delete_rule", id: "profiles.rules.a" },
  );
  if (edited.kind === "refused") throw new Error(JSON.stringify(edited.faults));
  expect(edited.value.settings).toEqual(new Map([["profiles.preset", "open"]]));
  expect(edited.value.rules).toMatchObject([{ id: "profiles.rules.b", priority: 20, at: undefined }]);
  expect(user.rules).toMatchObject([{ id: "profiles.rules.a" }]);
  expect(user.settings.get("limits.idle_secs")).toBe(60);
});

test.each<[string, PolicyEdit, string]>([
  ["a locked setting", { kind: "set", key: "limits.running_max", value: 8 }, "locked"],
  ["the reset of a locked setting", { kind: "reset", key: "limits.running_max" }, "locked"],
  ["a setting of the corporation", { kind: "set", key: "corp.rule_files", value: [] }, "locked"],
  ["an unknown setting", { kind: "set", key: "limits.idle", value: 8 }, "unknown_key"],
  ["a name of JavaScript", { kind: "set", key: "constructor", value: 8 }, "unknown_key"],
  ["a wrong value", { kind: "set", key: "asks.timeout_secs", value: 301 }, "bad_value"],
  ["a value of another type", { kind: "set", key: "limits.running_max", value: "8" }, "locked"],
  ["a rule of the corporation", { kind: "put_rule", id: "corp.rules.c", fields: {} }, "locked"],
  ["the end of a corporate rule", { kind: "delete_rule", id: "corp.rules.c" }, "locked"],
  ["a built-in rule", { kind: "delete_rule", id: "default.private_hosts" }, "locked"],
  ["an unknown rule", { kind: "delete_rule", id: "profiles.rules.zz" }, "unknown_rule"],
  [
    "a rule without a name",
    { kind: "put_rule", id: "profiles.rules.", fields: { action: "ask", match: "true" } },
    "bad_name",
  ],
  [
    "a rule somewhere else",
    { kind: "put_rule", id: "a", fields: { action: "ask", match: "true" } },
    "bad_name",
  ],
  [
    "a rule that does not compile",
    { kind: "put_rule", id: "profiles.rules.b", fields: { action: "ask", match: "http.hst" } },
    "unknown_field",
  ],
  [
    "a rule with another's priority",
    { kind: "put_rule", id: "profiles.rules.b", fields: { action: "ask", match: "true", priority: -10 } },
    "bad_priority",
  ],
  [
    "a rule with half a character",
    { kind: "put_rule", id: "profiles.rules.b", fields: { action: "ask", match: 'http.path == "\ud800"' } },
    "bad_value",
  ],
])("%s refuses the whole batch", (_, wrong, code) => {
  const good: PolicyEdit = { kind: "set", key: "limits.idle_secs", value: 30 };
  expect(edit(good, wrong, good)).toMatchObject({ kind: "refused", faults: [{ code }] });
});

test("a rule of another file is not changed here", () => {
  const elsewhere = new Set(["profiles.rules.far"]);
  const edits = [{ kind: "delete_rule", id: "profiles.rules.far" }] as const;
  expect(applyEdits({ user, corp, elsewhere }, edits)).toMatchObject({ faults: [{ code: "locked" }] });
});

test("a layer that is written and read again is the same layer", () => {
  const random = new Random(51);
  const reasons = ["", 'quotes " and \\ and é💥', "tab\u00a0less"];
  for (let round = 0; round < 200; round += 1) {
    const edits: PolicyEdit[] = Array.from({ length: 4 }, (_, n) => ({
      kind: "put_rule",
      id: `profiles.rules.r${n}`,
      fields: {
        action: random.pick(["allow", "ask", "block", "rewrite"]),
        match:
          random.pick([" ", "\n", "\t"]) +
          randomCondition(random) +
          random.pick(["", "\n", ` || "'''" == "\\u007f"`]),
        priority: 10 + random.below(991),
        reason: random.pick(reasons),
        enabled: random.chance(2),
        detection_level: random.pick(["none", "low", "critical"]),
      },
    }));
    edits.push({ kind: "set", key: "profiles.rule_files", value: ['a "b"', "c\\d"] });
    const made = applyEdits({ user: emptyLayer("user"), corp }, edits);
    if (made.kind === "refused") {
      // Only the cost of what chance has put together may be too high.
      expect(new Set(made.faults.map(({ code }) => code))).toEqual(new Set(["too_costly"]));
      continue;
    }
    const text = renderLayer(made.value);
    const read = parseLayer("user", text);
    if (read.kind === "refused") throw new Error(`${text}\n${JSON.stringify(read.faults)}`);
    expect(read.value.settings).toEqual(made.value.settings);
    const plain = (layer: typeof read.value) =>
      layer.rules.map(({ condition, guard: _, reads: _reads, at: __, ...rest }) => ({
        ...rest,
        match: condition.source,
      }));
    expect(plain(read.value)).toEqual(plain(made.value));
  }
});

test("the active policy shows everything in force, with who said it", () => {
  const text = renderActivePolicy(
    snapshotOf(
      renderLayer(user),
      '[limits]\nrunning_max = 4\n[corp.rules.c]\naction = "block"\nmatch = "false"\n',
    ),
  );
  expect(text).toContain("running_max = 4 # corp, locked");
  expect(text).toContain("idle_secs = 60 # user");
  expect(text).toContain("pool_size = 2 # builtin");
  expect(text.indexOf("[corp.rules.c]")).toBeLessThan(text.indexOf("[profiles.rules.a]"));
  expect(text.indexOf("[profiles.rules.a]")).toBeLessThan(text.indexOf("[default.metadata_hosts]"));
});

test("a rule is written alone as in its file, and listed in the words of its file", () => {
  const text = `[profiles.rules.a]
action = "rewrite"
match = '"x" in vm.labels'
priority = 20
detection_level = "low"
reason = "why \\"so\\""
enabled = false
`;
  const [one] = layerOf("user", `\n${text}`).rules;
  if (one === undefined) throw new Error("no rule");
  expect(ruleText(one)).toBe(text);
  expect(ruleJson(one)).toEqual({
    id: "profiles.rules.a",
    name: "a",
    source: "user",
    action: "rewrite",
    match: '"x" in vm.labels',
    detection_level: "low",
    priority: 20,
    reason: 'why "so"',
    enabled: false,
    line: 2,
  });
  const fields = { action: "ask", match: "true" };
  const made = edit({ kind: "put_rule", id: "profiles.rules.b", fields });
  const [, other] = made.kind === "ok" ? made.value.rules : [];
  expect(other === undefined || "line" in ruleJson(other)).toBe(false);
});

test("a name of JavaScript's is no name of a rule", () => {
  const fields = { action: "ask", match: "true" };
  expect(edit({ kind: "put_rule", id: "profiles.rules.__proto__", fields })).toMatchObject({
    faults: [{ code: "bad_name" }],
  });
  const hidden = JSON.parse('{ "action": "ask", "match": "true", "__proto__": { "enabled": false } }');
  expect(edit({ kind: "put_rule", id: "profiles.rules.b", fields: hidden })).toMatchObject({
    faults: [{ code: "unknown_key" }],
  });
});

test.each<[string, unknown, boolean]>([
  ["ledger.retention_days", 1, true],
  ["ledger.retention_days", 3_650, true],
  ["ledger.retention_days", 0, false],
  ["ledger.retention_days", 3_651, false],
  ["ledger.retention_days", 1.5, false],
  ["ledger.vm_mib_max", 8, true],
  ["ledger.vm_mib_max", 65_537, false],
  ["ledger.total_mib_max", 63, false],
  ["ledger.total_mib_max", 1_048_576, true],
  ["profiles.rule_files", ["a\ud800"], false],
  ["profiles.rule_files", ["💥"], true],
])("%s takes %j: %s", (key, value, isTaken) => {
  expect(edit({ kind: "set", key, value }).kind).toBe(isTaken ? "ok" : "refused");
});
