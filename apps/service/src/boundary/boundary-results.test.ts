import { expect, test } from "vitest";
import { completeDraft } from "./command-draft.ts";
import { contextOf } from "./testing/contexts.ts";
import { ruleOn } from "./testing/fake-parts.ts";
import { ALLOWED, decisionOf, EXEC, gate, outcomeOf } from "./testing/gate.ts";

test.each([
  { what: "about the act alone", more: "", held: 0 },
  {
    what: "about its result too",
    more: ' && (!has(process.exec.stdout) || process.exec.stdout != "")',
    held: 1,
  },
])("a rule $what, whose ask was approved, asks of the result $held times", async ({ more, held }) => {
  const { boundary, policy, asks } = gate();
  policy.rules(`
[profiles.rules.guard]
action = "ask"
match = 'process.command.contains("${String(EXEC.fields["process.command"])}")${more}'
priority = 20
`);
  const end = { exit_code: 0, signal: null, timed_out: false, out_of_memory: null };
  const counted = { ...end, agent_us: 1, stdout_bytes: 2, stderr_bytes: 0, truncated: false };
  const result = completeDraft(EXEC, counted, { stdout: Buffer.from("hi"), stderr: Buffer.alloc(0) });
  const asked = decisionOf("ask", "profiles.rules.guard");
  const judged = outcomeOf(boundary.judgeResult(contextOf(), result, asked));
  if (held === 0) expect(await judged).toEqual({ value: undefined });
  else await expect.poll(() => asks.held.length).toBe(1);
  asks.held[0]?.resolve("approved");
  await judged;
  expect(boundary.noteResult(contextOf(), result, asked)).toBe(held === 0 ? "allow" : "ask");
  // Another rule's ask is another question.
  expect(boundary.noteResult(contextOf(), result, decisionOf("ask", "profiles.rules.other"))).toBe("ask");
});

test.each([
  { what: "matched the act too", more: "", matched: true, noted: "allow" },
  { what: "is about results", more: "", matched: false, noted: "ask" },
  { what: "reads the result", more: ' && process.exec.stdout != "x"', matched: true, noted: "ask" },
  { what: "asks for the result", more: " && has(process.exec.exit_code)", matched: true, noted: "ask" },
])("of an act that a rule before allowed, a rule that asks and $what: $noted", ({ more, matched, noted }) => {
  const { boundary, policy } = gate();
  policy.rules(
    `[profiles.rules.guard]\naction = "ask"\nmatch = 'process.command.contains("make")${more}'\npriority = 20\n`,
  );
  const end = { exit_code: 0, signal: null, timed_out: false, out_of_memory: null };
  const counted = { ...end, agent_us: 1, stdout_bytes: 2, stderr_bytes: 0, truncated: false };
  const result = completeDraft(EXEC, counted, { stdout: Buffer.from("hi"), stderr: Buffer.alloc(0) });
  const allowed = decisionOf("allow", "profiles.rules.allow-1");
  const asks = { action: "ask", priority: 20, detection: "none", fault: undefined } as const;
  const guard = { ...asks, rule_id: "profiles.rules.guard" };
  const explanation = { ...allowed.explanation, matched: matched ? [guard] : [] };
  expect(boundary.noteResult(contextOf(), result, { ...allowed, explanation })).toBe(noted);
});

test("a client that asks the person itself is refused at once, and the act ends as asked; a result is held", async () => {
  const { boundary, ledger, policy, asks } = gate();
  policy.rules(ruleOn("process.exec", "ask"));
  const context = contextOf({ asks: "later" });
  const asking = outcomeOf(boundary.pass(context, EXEC, async () => 1));
  await expect.poll(() => asks.held.length).toBe(1);
  expect(asks.held[0]?.asked.isLater).toBe(true);
  asks.held[0]?.resolve("pending");
  expect(await asking).toMatchObject({
    ...{ kind: "policy", retryable: true },
    facts: { rule_id: "profiles.rules.guard", ask_id: "ask_abcdefghij234567" },
    message: expect.stringContaining("a person has to allow it first"),
  });
  expect(ledger.of("exec_events")).toMatchObject([{ outcome: "asked" }]);
  policy.rules(ruleOn("process.exec_complete", "ask"));
  const end = { exit_code: 0, signal: null, timed_out: false, out_of_memory: null };
  const counted = { ...end, agent_us: 1, stdout_bytes: 0, stderr_bytes: 0, truncated: false };
  const result = completeDraft(EXEC, counted, { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) });
  const judged = outcomeOf(boundary.judgeResult(context, result, ALLOWED));
  await expect.poll(() => asks.held.length).toBe(2);
  expect(asks.held[1]?.asked.isLater).toBe(false);
  asks.held[1]?.resolve("approved");
  expect(await judged).toEqual({ value: undefined });
});

test("a result that is blocked, or not approved, is withheld; its decision is complete by itself", async () => {
  const { boundary, ledger, policy, asks } = gate();
  const end = { exit_code: 0, signal: null, timed_out: false, out_of_memory: null };
  const counted = { ...end, agent_us: 1, stdout_bytes: 6, stderr_bytes: 0, truncated: false };
  const output = { stdout: Buffer.from("SECRET"), stderr: Buffer.alloc(0) };
  const result = completeDraft(EXEC, counted, output);
  expect(await outcomeOf(boundary.judgeResult(contextOf(), result, ALLOWED))).toEqual({ value: undefined });
  policy.rules(ruleOn("process.exec_complete", "block", ' && process.exec.stdout.contains("SECRET")'));
  const refused = await outcomeOf(boundary.judgeResult(contextOf(), result, ALLOWED));
  expect(refused).toMatchObject({ kind: "policy", facts: { rule_id: "profiles.rules.guard" } });
  expect(refused.message).toContain("which has run");
  expect(refused.message).not.toContain("SECRET");
  expect(boundary.noteResult(contextOf(), result, ALLOWED)).toBe("block");
  policy.rules(ruleOn("process.exec_complete", "ask"));
  const asking = outcomeOf(boundary.judgeResult(contextOf(), result, ALLOWED));
  await expect.poll(() => asks.held.length).toBe(1);
  asks.held[0]?.resolve("denied");
  expect(await asking).toMatchObject({ kind: "policy" });
  expect(ledger.of("exec_events")).toEqual([]);
  expect(ledger.of("security_decision_events").map(({ action }) => action)).toEqual([
    "allow",
    "block",
    "block",
    "ask",
  ]);
  ledger.trouble.set("*", "ledger_away");
  expect((await outcomeOf(boundary.judgeResult(contextOf(), result, ALLOWED))).kind).toBe("ledger_away");
  expect(boundary.noteResult(contextOf(), result, ALLOWED)).toBe("ask");
});
