import { RE2JS } from "re2js";
import { expect, test } from "vitest";
import { compileCondition, isCondition } from "./cel/condition.ts";
import type { Meter } from "./cel/meter.ts";
import { decide } from "./decide.ts";
import { applyEdits } from "./edit.ts";
import type { EventFields } from "./event/event.ts";
import { securityEvent } from "./event/event.ts";
import { canonicalHost } from "./event/host.ts";
import { emptyLayer, joinLayers, parseLayer } from "./layer.ts";
import { POLICY_LIMITS } from "./limits.ts";
import { lintRules, lintSlices } from "./lint.ts";
import { replay } from "./replay.ts";
import { layerOf, snapshotOf } from "./testing/policies.ts";
import { Random } from "./testing/random.ts";
import { ruleThatHangs } from "./unseen.ts";

const ID = { event_id: "0123456789ab" };
const { decisionStepsMax, patternSizeMax, patternSizesMax } = POLICY_LIMITS;

function ruleText(name: string, match: string, more = ""): string {
  return `[profiles.rules.${name}]\naction = "block"\nmatch = '''${match}'''\n${more}`;
}

function rulesOf(count: number, matchOf: (n: number) => string): string {
  return Array.from({ length: count }, (_, n) => ruleText(`r${n}`, matchOf(n))).join("");
}

function request(fields: EventFields) {
  return securityEvent("http.request", ID, { "http.host": "x.test", "http.method": "GET", ...fields });
}

/** Steps that a rule takes for an event when nobody stops it. */
function stepsFreely(match: string, facts: ReturnType<typeof request>["facts"]): number {
  const condition = compileCondition(match);
  if (!isCondition(condition)) throw new Error(condition.message);
  const meter: Meter = { left: Number.MAX_SAFE_INTEGER };
  condition.evaluate(facts, meter);
  return Number.MAX_SAFE_INTEGER - meter.left;
}

test("a pattern of nested repetitions is refused before anything compiles it", () => {
  const source = "a{1000}".repeat(140);
  // The attack: the library writes out 140,000 instructions before anybody can ask how many they are.
  expect(RE2JS.compile(source).programSize()).toBeGreaterThan(1_000 * POLICY_LIMITS.patternProgramMax);
  const parsed = parseLayer("user", ruleText("bomb", `http.body.matches("${source}")`));
  expect(parsed).toMatchObject({ kind: "refused", faults: [{ code: "bad_pattern", at: { line: 3 } }] });
  expect(JSON.stringify(parsed)).toContain(
    `about 140000 instructions with all repetitions, limit ${patternSizeMax}`,
  );
});

test.each([
  [
    "ranges without regard to case",
    "(?i)[\\\\x{80}-\\\\x{fffe}]{2}[\\\\x{80}-\\\\x{fffd}][\\\\x{80}-\\\\x{fffc}]",
  ],
  ["tables of Unicode", "[\\\\pL\\\\pN]?".repeat(20)],
  ["repetitions in a group", "((ab?){30}){30}"],
])("a pattern of many %s is refused before anything compiles it", (_what, pattern) => {
  const compiled = compileCondition(`http.body.matches("${pattern}")`);
  expect(compiled).toMatchObject({ code: "bad_pattern", message: expect.stringContaining("limit 2048") });
});

test("one rule of many patterns is refused as a whole, at the pattern with which it is too large", () => {
  const one = `http.body.matches("[a-z]{100}${"x".repeat(20)}")`;
  const compiled = compileCondition(Array(18).fill(one).join(" || "));
  expect(compiled).toMatchObject({ code: "too_large", offset: 17 * (one.length + 4) });
  expect(isCondition(compileCondition(Array(17).fill(one).join(" || ")))).toBe(true);
});

test("the patterns of all rules are bounded together, in a file, in several, and by an edit; the rule is named", () => {
  const matchOf = (n: number) => `http.body.matches("(?i)[\\\\x{80}-\\\\x{ffff}]${n}")`;
  const most = Math.floor(patternSizesMax / 1_024);
  const refused = parseLayer("user", rulesOf(most + 4, matchOf));
  const says = expect.stringMatching(/^with rule "profiles\.rules\.r6\d" the patterns .* limit 65536$/);
  expect(refused).toMatchObject({ kind: "refused", faults: [{ code: "too_large", message: says }] });
  const half = layerOf("user", rulesOf(most / 2, matchOf));
  const other = layerOf("user", rulesOf(most / 2, matchOf).replaceAll("rules.r", "rules.s"));
  expect(joinLayers([half]).kind).toBe("ok");
  expect(joinLayers([half, other])).toMatchObject({ faults: [{ code: "too_large" }] });
  const full = layerOf("user", rulesOf(most - 4, matchOf));
  const edits = Array.from({ length: 6 }, (_, n) => {
    const fields = { action: "block", match: matchOf(n) };
    return { kind: "put_rule", id: `profiles.rules.more${n}`, fields } as const;
  });
  const layers = { user: full, corp: emptyLayer("corp") };
  expect(applyEdits(layers, edits.slice(0, 2)).kind).toBe("ok");
  expect(applyEdits(layers, edits)).toMatchObject({
    faults: [{ code: "too_large", subject: expect.stringContaining("profiles.rules.more") }],
  });
});

const random = new Random(7);
/** No two places in it are alike, so no memory of an engine is of use. */
const NOISE = Array.from({ length: 32_768 }, () => random.pick(["a", "b"])).join("");
const SLOW = 'http.body.matches("[ab]*a[ab]{100}[cd]")';
const NEEDLE = `${"a".repeat(8_000)}b${"a".repeat(8_000)}`;

test.each<[string, string, EventFields]>([
  ["a pattern that keeps a hundred places open", SLOW, { "http.body": NOISE }],
  [
    "a text that begins everywhere in another one and never ends there",
    "http.body.contains(http.query)",
    { "http.body": "a".repeat(65_536), "http.query": NEEDLE },
  ],
  [
    "a loop in a loop over long lists",
    "vm.labels.exists(a, vm.labels.exists(b, a + b == b))",
    { "vm.id": "vm_x", "vm.labels": Array.from({ length: 256 }, (_, n) => `label ${n}`) },
  ],
  ["letters of both cases in turn", 'http.body.lowerAscii() == "x"', { "http.body": "aB".repeat(32_768) }],
])(
  "%s: few such rules are dear without a bound, and a decision of many takes what one may take",
  (_what, match, fields) => {
    const event = request(fields);
    const each = stepsFreely(match, event.facts);
    // The attack: all rules that a file may hold would keep the one thread busy for minutes.
    expect(each * POLICY_LIMITS.rulesMax).toBeGreaterThan(20 * decisionStepsMax);
    const count = Math.ceil(decisionStepsMax / each) + 2;
    const decision = decide(snapshotOf(rulesOf(count, (n) => `${match} && http.port != ${n}`)), event);
    expect(decision.action).toBe("block");
    const says = `cannot be evaluated: the rules up to it take more than ${decisionStepsMax} steps for this event`;
    expect(decision.reason).toContain(says);
    expect(decision.reason).toContain(`rule "${decision.rule_id}"`);
    // Those after it were not asked: one fault is written down, not hundreds.
    expect(decision.explanation.matched).toHaveLength(1);
  },
);

test("rules that come first decide before the work runs out: a block of the corporation's holds, and so does an allow", () => {
  const slow = rulesOf(14, () => SLOW);
  const event = request({ "http.body": NOISE });
  const corp = '[corp.rules.first]\naction = "block"\nmatch = \'http.host == "x.test"\'\n';
  expect(decide(snapshotOf(slow, corp), event).rule_id).toBe("corp.rules.first");
  expect(decide(snapshotOf(slow, corp.replace("block", "allow")), event).action).toBe("allow");
  const alone = decide(snapshotOf(slow), event);
  expect(alone).toMatchObject({ action: "block", rule_id: expect.stringMatching(/r\d$/) });
});

test("what is absent is no way past a rule in which the work runs out", () => {
  const event = request({ "http.body": NOISE });
  // Absence wins over a fault, so this rule alone would have no value and not match.
  const last = `process.command == "x" || ${Array(12).fill(SLOW).join(" || ")}`;
  expect(decide(snapshotOf(ruleText("last", last, "priority = 900\n")), event)).toMatchObject({
    action: "block",
    rule_id: "profiles.rules.last",
  });
});

test("a decision follows from snapshot and event: what was judged before takes nothing from it", () => {
  const snapshot = snapshotOf(rulesOf(3, (n) => `${SLOW} && http.port != ${n}`));
  const event = request({ "http.body": NOISE });
  const first = JSON.stringify(decide(snapshot, event));
  for (let round = 0; round < 3; round += 1) expect(JSON.stringify(decide(snapshot, event))).toBe(first);
});

test("a replay and a judgement without the content are open, not allowed, where the work runs out", () => {
  const snapshot = snapshotOf(
    `${rulesOf(14, () => `http.query == "x" && ${SLOW}`)}${ruleText("z", "http.port == 1")}`,
  );
  const event = request({ "http.body": NOISE, "http.query": "y" });
  const was = { action: "ask", rule_id: "posture.developer" } as const;
  const isHidden = (path: string) => path === "http.query";
  expect(replay(event.toJSON(), was, snapshot, { isHidden })).toMatchObject({ kind: "undecidable" });
  expect(ruleThatHangs(snapshot, event, decide(snapshot, event), ["http.query"])).toContain(
    "profiles.rules.r",
  );
});

test("a host of many dots is no host, at once", () => {
  expect(canonicalHost(`${".".repeat(16_000)}x`)).toBeNull();
  expect(canonicalHost(`${"%41".repeat(50)}.test`)).toBe(`${"a".repeat(50)}.test`);
});

/** `&&` and `||` in turn, around parts that differ. */
function nested(n: number, depth: number): string {
  let match = `vm.id == "q${n}"`;
  for (let level = 0; level < depth; level += 1) {
    match = `(${match} ${level % 2 === 0 ? "&&" : "||"} vm.name == "${n % 2 === 0 ? "a" : "b"}${level}")`;
  }
  return match;
}

test("the linter compares nested conditions in their sizes, not in all the ways through them", () => {
  // Each level more would double it: 28 are a quarter of a thousand million.
  const rules = layerOf(
    "user",
    rulesOf(4, (n) => nested(n, 28)),
  ).rules;
  let slices = 0;
  for (const _ of lintSlices(rules)) slices += 1;
  expect(slices).toBeLessThan(20);
});

test("what the linter cannot compare in its bound, it says", () => {
  const names = Array.from({ length: 40 }, (_, i) => `vm.name == "v${i}"`);
  const findings = lintRules(
    layerOf(
      "user",
      rulesOf(300, (n) => [`vm.id == "${n}"`, ...names].join(" || ")),
    ).rules,
  );
  expect(findings.at(-1)).toMatchObject({
    kind: "uncompared",
    rule_id: expect.stringMatching(/^profiles\.rules\.r\d+$/),
    message: expect.stringContaining(`more than ${POLICY_LIMITS.lintStepsMax} steps`),
  });
});

test("1,900 rules about different things are compared with few others, in slices", () => {
  const shapes = [
    (n: number) => `process.command.matches("tool${n} .*--force")`,
    (n: number) => `host_in(http.host, "site${n}.example.com")`,
    (n: number) => `mcp.server.name == "server_${n}" && mcp.tool_call.name == "x"`,
    (n: number) => `vm.name == "vm${n}"`,
  ];
  const text = rulesOf(1_900, (n) => shapes[n % 4]?.(n) ?? "true");
  const rules = layerOf("user", `${text}${ruleText("same", 'vm.name == "vm3"')}`).rules;
  const slices = lintSlices(rules);
  let count = 0;
  let slice = slices.next();
  for (; slice.done !== true; slice = slices.next()) count += 1;
  // Two slices of a few ms for every hundred rules; all pairs of them would be hundreds.
  expect(count).toBeGreaterThan(20);
  expect(count).toBeLessThan(200);
  const shadowed = (slice.value ?? []).filter(({ kind }) => kind === "shadowed");
  expect(shadowed).toMatchObject([{ rule_id: "profiles.rules.same", other_id: "profiles.rules.r3" }]);
});
