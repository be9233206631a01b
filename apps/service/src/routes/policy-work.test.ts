import { ROUTES } from "@capsem/api";
import { POLICY_LIMITS } from "@capsem/policy";
import { expect, test } from "vitest";
import { lintInTurns } from "../policy/lint-in-turns.ts";
import { PolicyChanges } from "../policy/policy-changes.ts";
import type { DecisionsOf } from "../policy/replay-past.ts";
import { CONTEXT, fakeBoundary, refusal, useTempPolicies } from "../policy/testing/temp-policy.ts";
import { policyRoutes } from "./policy-routes.ts";

const temp = useTempPolicies();

const none: DecisionsOf = async function* () {
  yield* [];
};

async function trial() {
  const policy = await temp().open();
  const { boundary } = fakeBoundary(policy);
  const handlers = policyRoutes({
    knownTools: () => null,
    ...{ policy, policyChanges: new PolicyChanges(policy, boundary), nowMs: () => 0, decisionsOf: none },
    vmFacts: (id) => ({ id, name: "x", image: "sha256:1" }),
  });
  const call = async (name: "ruleEvaluate" | "ruleLint" | "corpValidate", body: unknown) => {
    const parsed = ROUTES[name].body.parse(body);
    const handler = handlers[name] as (given: unknown) => Promise<{ value: unknown }>;
    const { value } = await handler({ params: {}, query: undefined, body: parsed, context: CONTEXT });
    return value as Record<string, unknown>;
  };
  return { policy, call };
}

function rulesOf(table: string, count: number, match: (n: number) => string): string {
  const rule = (n: number) => `[${table}.r${n}]\naction = "block"\nmatch = '''${match(n)}'''\n`;
  return Array.from({ length: count }, (_, n) => rule(n)).join("");
}

const BOMB = `process.command.matches("${"a{1000}".repeat(100)}")`;

test("rules that would be dear to compile are refused by every route that takes their text, and not compiled", async () => {
  const { call, policy } = await trial();
  const event = { type: "process.exec", fields: { "process.command": "x" } };
  const says = `about 100000 instructions with all repetitions, limit ${POLICY_LIMITS.patternSizeMax}`;
  const rules = rulesOf("profiles.rules", 20, () => BOMB);
  expect((await refusal(call("ruleEvaluate", { event, rules }))).message).toContain(says);
  expect(JSON.stringify(await call("ruleLint", { rules }))).toContain(says);
  const text = rulesOf("corp.rules", 20, () => BOMB);
  expect(JSON.stringify(await call("corpValidate", { text }))).toContain(says);
  const put = { kind: "put_rule", id: "profiles.rules.x", fields: { action: "block", match: BOMB } } as const;
  expect((await refusal(policy.edit([put]))).message).toContain(says);
});

test("a dry run of rules that take too long says which rule and which limit, as the act would", async () => {
  const { call } = await trial();
  const text = "aB".repeat(8_000);
  const rules = rulesOf("profiles.rules", 12, (n) => {
    return `${Array(15).fill('process.command.matches("(?i)[ab]*a[ab]{100}[cd]")').join(" || ")} || vm.name == "${n}"`;
  });
  const event = { type: "process.exec", fields: { "process.command": text } };
  const { decision } = await call("ruleEvaluate", { event, rules });
  const { action, rule_id, reason } = decision as { action: string; rule_id: string; reason: string };
  expect([action, rule_id]).toEqual(["block", expect.stringMatching(/^profiles\.rules\.r\d+$/)]);
  const says = `rule "${rule_id}" cannot be evaluated: the rules up to it take more than ${POLICY_LIMITS.decisionStepsMax}`;
  expect(reason).toContain(says);
});

test("while many rules are linted, others have their turn", async () => {
  const policy = await temp({
    "settings.toml": rulesOf("profiles.rules", 1_000, (n) => `vm.name == "vm${n}"`),
  }).open();
  let turns = 0;
  const timer = setInterval(() => {
    turns += 1;
  }, 0);
  const findings = await lintInTurns(policy.snapshot().rules);
  clearInterval(timer);
  expect(findings).toEqual([]);
  expect(turns).toBeGreaterThan(5);
  // Asked again, it is not done again.
  expect(policy.state.findings()).toBe(policy.state.findings());
});
