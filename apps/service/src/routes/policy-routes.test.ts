import { ROUTES, type RouteName, type SecurityEntry } from "@capsem/api";
import { Failure } from "@capsem/base";
import {
  decide,
  EVENT_TYPE_NAMES,
  eventFromJson,
  SETTING_KEYS,
  SETTINGS,
  securityEvent,
} from "@capsem/policy";
import { expect, test } from "vitest";
import { Random } from "../../../../packages/policy/src/testing/random.ts";
import { randomCondition } from "../../../../packages/policy/src/testing/random-condition.ts";
import { randomEvent } from "../../../../packages/policy/src/testing/random-event.ts";
import { PolicyChanges } from "../policy/policy-changes.ts";
import { type DecisionsOf, replayPast } from "../policy/replay-past.ts";
import {
  CONTEXT,
  fakeBoundary,
  refusal,
  type TempPolicy,
  useTempPolicies,
} from "../policy/testing/temp-policy.ts";
import { policyRoutes } from "./policy-routes.ts";

const temp = useTempPolicies();
const VM = "vm_aaaaaaaaaaaaaaaa";
const BASE = `# mine
[limits]
running_max = 4

[profiles]
rule_files = ["team.toml"]

[profiles.rules.no-force]
action = "ask"
match = 'process.command.matches("git push .*--force")'
reason = "this rewrites what others have"

[profiles.rules.asleep]
action = "block"
match = "true"
enabled = false
`;
const TEAM = `[profiles.rules.team]\naction = "block"\nmatch = 'vm.name == "prod"'\n`;
const CORP = `[limits]\nidle_secs = 60\n\n[corp.rules.no-prod]\naction = "block"\nmatch = 'vm.name == "prod"'\n`;
const FILES = { "settings.toml": BASE, "team.toml": TEAM, "corp.toml": CORP };

const none: DecisionsOf = async function* () {
  yield* [];
};

async function routes(rig: TempPolicy, decisionsOf: DecisionsOf = none) {
  const policy = await rig.open();
  const { boundary, acts } = fakeBoundary(policy);
  const handlers = policyRoutes({
    knownTools: () => null,
    ...{ policy, policyChanges: new PolicyChanges(policy, boundary), nowMs: () => Date.parse("2026-01-01") },
    vmFacts(id) {
      if (id !== VM) throw new Failure("vm_not_found", `Cannot find VM "${id}": no such VM`);
      return { id, name: "prod", image: "sha256:1" };
    },
    decisionsOf,
  });
  type Name = keyof typeof handlers & RouteName;
  /** What the client sent is parsed, and the answer is of the route's shape. */
  async function call(name: Name, body: unknown = undefined, id?: string): Promise<Record<string, unknown>> {
    const route: { body?: { parse(body: unknown): unknown }; result?: { parse(v: unknown): unknown } } =
      ROUTES[name];
    const parsed = route.body === undefined ? undefined : route.body.parse(body);
    const handler = handlers[name] as (given: unknown) => Promise<{ value: unknown }>;
    const { value } = await handler({ params: { id }, query: undefined, body: parsed, context: CONTEXT });
    return route.result?.parse(value) as Record<string, unknown>;
  }
  return { policy, acts, call };
}

test("rules are listed in the order of judgement, with where each stands and who may change it", async () => {
  const { call, policy } = await routes(temp(FILES));
  const list = await call("rules");
  const rules = list.rules as { id: string; priority: number; is_locked: boolean }[];
  expect(rules.slice(0, 4)).toMatchObject([
    { id: "corp.rules.no-prod", source: "corp", file: "corp.toml", line: 4, is_locked: true },
    { id: "profiles.rules.asleep", enabled: false, file: "settings.toml", line: 13, is_locked: false },
    {
      id: "profiles.rules.no-force",
      action: "ask",
      reason: "this rewrites what others have",
      is_locked: false,
    },
    { id: "profiles.rules.team", file: "team.toml", line: 1, is_locked: true },
  ]);
  expect(rules.at(-1)).toMatchObject({ source: "builtin", file: null, line: null, is_locked: true });
  expect(list).toMatchObject({ preset: "developer", digest: policy.snapshot().digest });
  expect(Object.keys(list.posture as object)).toEqual(EVENT_TYPE_NAMES);
  expect(list.findings).toMatchObject([
    { kind: "no_always" },
    { kind: "shadowed", rule_id: "profiles.rules.team" },
  ]);
});

test.each(["fresh", "profiles.rules.fresh"])("a rule is put, replaced and deleted as %s", async (id) => {
  const rig = temp(FILES);
  const { call, policy, acts } = await routes(rig);
  const body = { action: "block", match: 'process.command == "rm"' };
  expect(await call("rulePut", body, id)).toMatchObject({ digest: policy.snapshot().digest });
  await call("rulePut", { ...body, action: "ask", reason: "why" }, id);
  expect(rig.read("settings.toml")).toContain('[profiles.rules.fresh]\naction = "ask"\n');
  expect(rig.read("settings.toml").startsWith("# mine\n")).toBe(true);
  await call("ruleDelete", undefined, id);
  expect(rig.read("settings.toml").trim()).toBe(BASE.trim());
  expect(acts.map(({ key, outcome }) => [key, outcome])).toEqual(
    Array(3).fill(["profiles.rules.fresh", "done"]),
  );
});

test.each<[name: "rulePut" | "ruleDelete", id: string, kind: string, says: string]>([
  ["ruleDelete", "none", "rule_not_found", 'no rule "profiles.rules.none"'],
  ["ruleDelete", "team", "locked", "it stands in another rule file"],
  ["ruleDelete", "corp.rules.no-prod", "locked", "only the user's rules can be changed"],
  ["rulePut", "default.metadata_hosts", "locked", "only the user's rules can be changed"],
  ["rulePut", "my.rule", "invalid_input", "a rule is named profiles.rules.NAME"],
  ["rulePut", "UPPER", "invalid_input", "a name is 1 to 64 of a-z"],
])("%s of %s is refused as %s", async (name, id, kind, says) => {
  const { call, acts } = await routes(temp(FILES));
  const refused = await refusal(call(name, { action: "block", match: "vm.id == 'x'" }, id));
  expect(refused).toMatchObject({ kind, message: expect.stringContaining(says) });
  expect(refused.faults).toHaveLength(1);
  expect(acts).toEqual([]);
});

test("a bad condition is told with its fault", async () => {
  const { call } = await routes(temp(FILES));
  const refused = await refusal(
    call("rulePut", { action: "block", match: "vm.nmae == 'x'", priority: 5000 }, "x"),
  );
  expect(refused).toMatchObject({ kind: "invalid_input", message: expect.stringContaining("(and 1 more)") });
  expect(refused.faults).toMatchObject([
    { code: "unknown_field", file: null, line: null, column: null, subject: "profiles.rules.x" },
    { code: "bad_priority" },
  ]);
});

test("settings are listed with who said each, and edited all or none", async () => {
  const rig = temp(FILES);
  const { call } = await routes(rig);
  const list = await call("settings");
  expect(list.file).toBe(rig.layout.settings);
  const of = (all: Record<string, unknown>, key: string) =>
    (all.settings as { key: string }[]).find((setting) => setting.key === key);
  expect((list.settings as unknown[]).length).toBe(SETTING_KEYS.length);
  expect(of(list, "limits.running_max")).toEqual({
    ...{ key: "limits.running_max", value: 4, default: 8, source: "user", is_locked: false },
    ...{
      needs_restart: false,
      takes: "a whole number from 1 to 256",
      doc: SETTINGS["limits.running_max"].doc,
    },
  });
  expect(of(list, "limits.idle_secs")).toMatchObject({ value: 60, source: "corp", is_locked: true });
  expect(of(list, "corp.rule_files")).toMatchObject({ source: "builtin", is_locked: true });
  const edits = [
    { key: "limits.running_max", value: null },
    { key: "limits.pool_size", value: 0 },
  ];
  const after = await call("settingEdit", { edits });
  expect(of(after, "limits.running_max")).toMatchObject({ value: 8, source: "builtin" });
  expect(of(after, "limits.pool_size")).toMatchObject({ value: 0, source: "user" });
  const locked = { edits: [...edits.slice(1), { key: "limits.idle_secs", value: 5 }] };
  expect(
    await refusal(call("settingEdit", { edits: [{ key: "limits.pool_size", value: 3 }, ...locked.edits] })),
  ).toMatchObject({
    kind: "locked",
    message: 'Cannot change "limits.idle_secs": the corporation has set it',
  });
  expect(of(await call("settings"), "limits.pool_size")).toMatchObject({ value: 0 });
});

test("what each setting takes is what the checker says when it refuses", async () => {
  const { call } = await routes(temp());
  const { settings } = await call("settings");
  for (const { key, takes } of settings as { key: string; takes: string }[]) {
    if (key === "corp.rule_files") continue;
    const wrong = { edits: [{ key, value: key.includes("rule_files") ? 1 : ["wrong"] }] };
    const { message } = await refusal(call("settingEdit", wrong));
    // A step is told when it is what is wrong.
    expect(message).toContain(`"${key}" takes ${takes.replace(/ in steps of .*/, "")}`);
  }
});

test("a file broken by hand shows its faults beside what is still in force", async () => {
  const rig = temp(FILES);
  const { call, policy } = await routes(rig);
  rig.write("settings.toml", `${BASE}\n[limit]\n`);
  await policy.refresh();
  const faults = [{ code: "unknown_key", file: "settings.toml", line: 18, column: 2 }];
  expect(await call("settings")).toMatchObject({ faults });
  expect(await call("ruleLint", {})).toMatchObject({ faults });
  expect((await call("corp")).faults).toEqual([]);
});

test("the corporation's policy is shown, judged before it is there, and read again", async () => {
  const rig = temp(FILES);
  const { call, acts } = await routes(rig);
  expect(await call("corp")).toMatchObject({ is_present: true, rules: 1, locked: ["limits.idle_secs"] });
  const text = `[limits]\nrunning_max = 2\n[corp]\nrule_files = ["more.toml"]\n`;
  expect(await call("corpValidate", { text })).toMatchObject({
    is_valid: false,
    faults: [{ file: "more.toml", line: null }],
  });
  rig.write("more.toml", CORP.slice(CORP.indexOf("[corp")));
  expect(await call("corpValidate", { text })).toMatchObject({ is_valid: true, rules: 1, faults: [] });
  expect(await call("corpValidate", { text: "[limits]\nrunning_max = 0" })).toMatchObject({
    is_valid: false,
    faults: [{ file: "corp.toml", line: 2, column: 15 }],
  });
  expect(await call("corp")).toMatchObject({ locked: ["limits.idle_secs"] });
  rig.write("corp.toml", text);
  expect(await call("corpReload")).toMatchObject({ locked: ["corp.rule_files", "limits.running_max"] });
  expect(acts.at(-1)).toMatchObject({ key: "corp.reload", outcome: "done" });
});

test("without a corp.toml there is none", async () => {
  expect(await (await routes(temp())).call("corp")).toMatchObject({
    is_present: false,
    digest: null,
    locked: [],
  });
});

/** Commands and names that the rules of `FILES` tell apart. */
const COMMANDS = ["ls", "git push --force", "git push", ""];

test("a dry run decides as the act would be decided, in words too", async () => {
  const { call, policy } = await routes(temp(FILES));
  for (const command of COMMANDS) {
    for (const vm of [null, VM]) {
      const fields = { "process.command": command };
      const vmFields = vm === null ? {} : { "vm.id": VM, "vm.name": "prod", "vm.image": "sha256:1" };
      const event = securityEvent("process.exec", { event_id: "0123456789ab" }, { ...fields, ...vmFields });
      const real = decide(policy.snapshot(), event);
      const body = { event: { type: "process.exec", fields }, ...(vm === null ? {} : { vm_id: vm }) };
      const { decision, text } = await call("ruleEvaluate", body);
      expect(decision).toMatchObject({ action: real.action, rule_id: real.rule_id, reason: real.reason });
      expect((decision as { matched: { rule_id: string }[] }).matched.map(({ rule_id }) => rule_id)).toEqual(
        real.explanation.matched.map(({ rule_id }) => rule_id),
      );
      expect(text).toContain(`${real.action}: `);
    }
  }
});

test("a dry run equals the decision for every type of event, whatever the rules are", async () => {
  const seed = Number(process.env.CAPSEM_FUZZ_SEED ?? 1);
  const random = new Random(seed);
  const rig = temp();
  const { call, policy } = await routes(rig);
  for (let round = 0; round < 8; round++) {
    const rules = Array.from({ length: 12 }, (_, index) => {
      const fields = { action: random.pick(["allow", "ask", "block"]), match: randomCondition(random) };
      return { kind: "put_rule", id: `profiles.rules.r${index}`, fields } as const;
    });
    // Random conditions may be dearer than a rule may be: those are left out.
    for (const rule of rules) await policy.edit([rule]).catch(() => undefined);
    for (const type of EVENT_TYPE_NAMES) {
      const event = randomEvent(random, type);
      const real = decide(policy.snapshot(), event);
      const { fields } = event.toJSON();
      const { decision } = await call("ruleEvaluate", { event: { type, fields } });
      const { action, rule_id, reason, detection } = real;
      expect(decision, `seed ${seed}, ${type}`).toMatchObject({ action, rule_id, reason, detection });
    }
  }
  expect(policy.state.user.whole.rules.length).toBeGreaterThan(3);
}, 60_000);

test("a dry run takes other rules in place of the user's, and changes nothing", async () => {
  const rig = temp(FILES);
  const { call, policy, acts } = await routes(rig);
  const { digest } = policy.snapshot();
  const event = { type: "process.exec", fields: { "process.command": "git push --force" } };
  const rules = `[profiles.rules.all]\naction = "block"\nmatch = "true"\n`;
  expect(await call("ruleEvaluate", { event })).toMatchObject({ decision: { action: "ask" } });
  expect(await call("ruleEvaluate", { event, rules })).toMatchObject({
    decision: { rule_id: "profiles.rules.all" },
  });
  // The corporation's are not the user's to leave out.
  expect(await call("ruleEvaluate", { event, rules: "", vm_id: VM })).toMatchObject({
    decision: { rule_id: "corp.rules.no-prod" },
  });
  expect([policy.snapshot().digest, acts]).toEqual([digest, []]);
});

test.each([
  ["an unknown type", { type: "process.exce", fields: {} }, "its type is unknown"],
  ["an unknown field", { type: "process.exec", fields: { "process.comand": "x" } }, "does not exist"],
  [
    "a field of another type",
    { type: "process.exec", fields: { "process.command": "x", "http.host": "x" } },
    "does not belong",
  ],
  ["a field too few", { type: "process.exec", fields: {} }, '"process.command" is missing'],
  ["a wrong value", { type: "process.exec", fields: { "process.command": 7 } }, "process.command"],
])("%s is no event", async (_what, event, says) => {
  const { call } = await routes(temp());
  expect(await refusal(call("ruleEvaluate", { event }))).toMatchObject({
    kind: "invalid_input",
    message: expect.stringContaining(says),
  });
});

test("faulty rules for a dry run are told with their places; a VM that is not there is", async () => {
  const { call } = await routes(temp());
  const event = { type: "process.exec", fields: { "process.command": "x" } };
  const faulty = "[profiles.rules.a]\naction = 'blok'\nmatch = 'true'\n[limits]\npool_size = 1\n";
  const refused = await refusal(call("ruleEvaluate", { event, rules: faulty }));
  expect(refused).toMatchObject({ kind: "invalid_input", faults: [{ line: 2 }, { line: 5 }] });
  expect(refused.message).toMatch(/^Cannot use these rules: rules:2:\d+: /);
  expect(await call("ruleLint", { rules: faulty })).toMatchObject({
    rules: 0,
    faults: [{ line: 2 }, { line: 5 }],
  });
  expect(await refusal(call("ruleEvaluate", { event, vm_id: "vm_bbbbbbbbbbbbbbbb" }))).toMatchObject({
    kind: "vm_not_found",
  });
});

test("a rule file is linted with the corporation's rules before it", async () => {
  const { call } = await routes(temp(FILES));
  expect(await call("ruleLint", { rules: TEAM })).toMatchObject({
    rules: 1,
    faults: [],
    findings: [{ kind: "shadowed", rule_id: "profiles.rules.team", other_id: "corp.rules.no-prod", line: 1 }],
  });
});

function entryOf(index: number, command: string, over: Partial<SecurityEntry> = {}): SecurityEntry {
  const event_id = index.toString(16).padStart(12, "0");
  const event = securityEvent("process.exec", { event_id }, { "process.command": command }).toJSON();
  return {
    ...{
      time: "2026-01-01T00:00:00.000Z",
      event_id,
      trace_id: null,
      requester: "user uid 1000",
      client: null,
    },
    ...{ type: "process.exec", action: "allow", rule_id: "posture.developer", reason: "", detection: "none" },
    ...{ policy_digest: "", matched: [], is_redacted: false },
    event: { ...event },
    ...over,
  };
}

test("a replay says what other rules would have decided of the past, and what nobody can say", async () => {
  const past = [
    entryOf(1, "ls"),
    entryOf(2, "git push --force"),
    entryOf(3, "curl -H [redacted] example.com"),
    entryOf(4, "x", { event: { type: "of another version", fields: {} }, type: "of another version" }),
  ];
  const asked: unknown[] = [];
  const decisionsOf: DecisionsOf = async function* (ledger, { sinceMs }) {
    asked.push([ledger, sinceMs]);
    yield* past;
  };
  const { call } = await routes(temp(FILES), decisionsOf);
  const now = await call("ruleReplay", { vm_id: VM, since: "2h" });
  expect(asked).toEqual([[VM, Date.parse("2025-12-31T22:00:00Z")]]);
  expect(now).toMatchObject({
    ...{ events: 4, same: 1, truncated: false },
    different: [
      {
        title: "process.exec git push --force",
        was: { action: "allow", rule_id: "posture.developer" },
        now: { action: "ask", rule_id: "profiles.rules.no-force", reason: "this rewrites what others have" },
      },
    ],
    // What stood in its place may have been a forced push.
    undecidable: [{ title: "process.exec curl -H [redacted] example.com" }, { title: "of another version" }],
  });
  const rules = `[profiles.rules.curl]\naction = "block"\nmatch = 'process.command.contains("secret.example")'\n`;
  expect(await call("ruleReplay", { vm_id: "host", rules })).toMatchObject({
    same: 2,
    different: [],
    undecidable: [{ event_id: past[2]?.event_id }, { event_id: past[3]?.event_id }],
  });
});

test("a replay equals what a dry run of the stored event says", async () => {
  const past = COMMANDS.map((command, index) => entryOf(index, command));
  const { call, policy } = await routes(temp(FILES), async function* () {
    yield* past;
  });
  const { different } = await call("ruleReplay", { vm_id: VM });
  const changed = past.filter(
    ({ event }) => decide(policy.snapshot(), eventFromJson(event)).action !== "allow",
  );
  expect((different as { event_id: string }[]).map(({ event_id }) => event_id)).toEqual(
    changed.map(({ event_id }) => event_id),
  );
  expect(changed).toHaveLength(1);
});

async function* long() {
  for (let index = 0; index < 2_000; index++) yield entryOf(index, "git push --force");
}

test("a long past is judged in slices, and listed up to a bound", async () => {
  const { call } = await routes(temp(FILES), long);
  let turns = 0;
  const timer = setInterval(() => {
    turns += 1;
  }, 0);
  const { events, different, truncated } = await call("ruleReplay", { vm_id: VM });
  clearInterval(timer);
  expect([events, (different as unknown[]).length, truncated]).toEqual([2_000, 500, true]);
  expect(turns).toBeGreaterThan(3);
});

test("a replay ends when its reader leaves", async () => {
  const { policy } = await routes(temp());
  const gone = new AbortController();
  let read = 0;
  const entries = (async function* () {
    for await (const entry of long()) {
      read += 1;
      if (read === 300) gone.abort(new Error("left"));
      yield entry;
    }
  })();
  await expect(replayPast(entries, policy.snapshot(), gone.signal)).rejects.toThrow("left");
  expect(read).toBeLessThan(500);
});
