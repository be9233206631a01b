import { createHash } from "node:crypto";
import { apiFailure, HOST_LEDGER } from "@capsem/api";
import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import { commandDraft, completeDraft, endFacts } from "./command-draft.ts";
import { fileDraft } from "./file-draft.ts";
import type { OpenAct } from "./parts.ts";
import { contextOf } from "./testing/contexts.ts";
import { ruleOn } from "./testing/fake-parts.ts";
import { ALLOWED, EXEC, gate, JOB, outcomeOf, VM } from "./testing/gate.ts";
import { lifecycleDraft } from "./vm-draft.ts";

test("an act that is allowed leaves its intent, the event, and one end with who, what and how long", async () => {
  const { boundary, ledger, clock, policy } = gate();
  const value = await boundary.pass(contextOf(), EXEC, async (permit) => {
    expect(ledger.of("security_decision_events")).toHaveLength(1);
    expect(ledger.of("exec_events")).toHaveLength(0);
    clock.ms = 12.5;
    permit.add({ exit_code: 3 });
    return permit.eventId;
  });
  const who = {
    event_id: value,
    time_ms: 1_000,
    trace_id: "ab".repeat(16),
    turn_id: "turn-1",
    requester: "user uid 1000",
    client: "tester/1",
    token_id: null,
  };
  expect(value).toMatch(/^[0-9a-f]{12}$/);
  const [decision] = ledger.of("security_decision_events", VM.id);
  expect(decision).toMatchObject({
    ...who,
    type: "process.exec",
    action: "allow",
    rule_id: "posture.developer",
    policy_digest: policy.snapshot().digest,
    is_redacted: false,
  });
  expect(ledger.of("exec_events", VM.id)).toEqual([
    {
      ...who,
      ...EXEC.row.facts,
      exit_code: 3,
      decision: "allow",
      rule_id: "posture.developer",
      reason: decision?.reason,
      outcome: "done",
      error: null,
      duration_ms: 12.5,
    },
  ]);
  expect(ledger.of("event_body_blobs")).toEqual([]);
  expect(decision?.event_hash).toBe(
    createHash("sha256")
      .update(decision?.event ?? "")
      .digest("hex"),
  );
  expect(JSON.parse(decision?.event ?? "")).toEqual({
    type: "process.exec",
    event_id: value,
    trace_id: "ab".repeat(16),
    turn_id: "turn-1",
    fields: {
      "process.command": "make test",
      "process.exec.id": JOB,
      "process.exec.user": "user",
      "process.exec.cwd": "/workspace",
      "process.exec.env_names": ["TOKEN"],
      "process.exec.has_stdin": false,
      "process.valid": true,
      "process.truncated": false,
      "vm.id": VM.id,
      "vm.name": "box",
      "vm.image": "sha256:aa",
    },
  });
  expect(ledger.text).not.toContain("hidden-value");
  expect(ledger.of("exec_events")[0]?.env_names).toBe('["TOKEN"]');
});

test("without a rule the command runs; with it nothing is done, and the refusal names the rule", async () => {
  const { boundary, ledger, policy } = gate();
  const attack = commandDraft(VM, JOB, "exec", { command: "git push --force" });
  let isDone = 0;
  const attempt = () => outcomeOf(boundary.pass(contextOf(), attack, async () => ++isDone));
  expect(await attempt()).toEqual({ value: 1 });
  ledger.clear();
  policy.rules(
    `[profiles.rules.no-force]\naction = "block"\nmatch = 'process.command.matches("push .*--force")'\nreason = "it rewrites what others have"\ndetection_level = "high"\n`,
  );
  expect(await attempt()).toEqual({
    kind: "policy",
    message: "Cannot run the command: blocked by profiles.rules.no-force: it rewrites what others have",
    facts: { rule_id: "profiles.rules.no-force" },
    retryable: false,
  });
  expect(isDone).toBe(1);
  expect(ledger.of("security_rule_events")).toMatchObject([
    { rule_id: "profiles.rules.no-force", action: "block", priority: 10, detection: "high", has_won: true },
  ]);
  expect(JSON.parse(ledger.of("security_rule_events")[0]?.rule ?? "")).toMatchObject({
    match: 'process.command.matches("push .*--force")',
  });
  expect(ledger.of("exec_events")).toMatchObject([
    { outcome: "blocked", decision: "block", error: null, duration_ms: null },
  ]);
});

test("a refusal says nothing of other rules: their conditions may be what is kept from whoever asks", async () => {
  const { boundary, policy } = gate();
  policy.rules(
    `${ruleOn("process.exec", "block")}[profiles.rules.tests]\naction = "allow"\nmatch = 'process.command == "make"'\npriority = 50\n`,
  );
  const refused = await outcomeOf(boundary.pass(contextOf(), EXEC, async () => 1));
  expect(refused.message).toBe("Cannot run the command: blocked by profiles.rules.guard: the test says so");
  expect(JSON.stringify(refused)).not.toContain("profiles.rules.tests");
});

test.each(["ledger_away", "ledger_full", "ledger_broken"] as const)(
  "where the ledger says %s nothing is done",
  async (trouble) => {
    const { boundary, ledger } = gate();
    ledger.trouble.set("*", trouble);
    let isDone = false;
    const refused = await outcomeOf(
      boundary.pass(contextOf(), EXEC, async () => {
        isDone = true;
      }),
    );
    expect(refused.kind).toBe(trouble);
    expect(isDone).toBe(false);
  },
);

test.each(["ledger_full", "ledger_broken"] as const)(
  "a VM whose ledger says %s can be stopped, deleted and emptied, which the host's ledger records",
  async (trouble) => {
    const { boundary, ledger, log } = gate();
    ledger.trouble.set(VM.id, trouble);
    const freeing = [
      lifecycleDraft(VM, "stop", "user uid 1000"),
      lifecycleDraft(VM, "delete", "user uid 1000"),
      lifecycleDraft(VM, "purge", "user uid 1000"),
      fileDraft("export", { vm: VM, path: "a" }),
    ];
    for (const draft of freeing) expect(await boundary.pass(contextOf(), draft, async () => 1)).toBe(1);
    expect(ledger.of("lifecycle_events", HOST_LEDGER)).toHaveLength(3);
    expect(ledger.of("fs_events", HOST_LEDGER)).toHaveLength(1);
    const working = [EXEC, fileDraft("import", { vm: VM, path: "a" }), lifecycleDraft(VM, "start", "x")];
    for (const draft of working) {
      expect((await outcomeOf(boundary.pass(contextOf(), draft, async () => 1))).kind).toBe(trouble);
    }
    // With no room anywhere what frees some goes on, and the log is what says so.
    ledger.trouble.set("*", "ledger_full");
    expect(await boundary.pass(contextOf(), lifecycleDraft(VM, "delete", "x"), async () => 1)).toBe(1);
    expect(log.at(-1)).toMatchObject({ level: "error", message: /in no ledger/ });
    ledger.trouble.set("*", "ledger_away");
    ledger.trouble.delete(VM.id);
    const away = boundary.pass(contextOf(), lifecycleDraft(VM, "delete", "x"), async () => 1);
    expect((await outcomeOf(away)).kind).toBe("ledger_away");
  },
);

test("work that fails ends its row with the kind, and one whose caller left as cancelled", async () => {
  const { boundary, ledger } = gate();
  const leaving = new AbortController();
  const cases: [() => Promise<never>, AbortSignal | undefined][] = [
    [async () => Promise.reject(apiFailure("vm_gone", "gone")), undefined],
    [async () => Promise.reject(new TypeError("a bug")), undefined],
    [async () => Promise.reject(apiFailure("cancelled", "left")), undefined],
    [
      async () => {
        leaving.abort();
        throw apiFailure("vm_gone", "gone with its client");
      },
      leaving.signal,
    ],
  ];
  for (const [work, signal] of cases) {
    const context = contextOf(signal === undefined ? {} : { signal });
    await expect(boundary.pass(context, EXEC, work)).rejects.toThrow();
  }
  expect(ledger.of("exec_events").map(({ outcome, error }) => [outcome, error])).toEqual([
    ["failed", "vm_gone"],
    ["failed", "internal"],
    ["cancelled", "cancelled"],
    ["cancelled", "vm_gone"],
  ]);
});

test("a caller that is gone before the work has it not done", async () => {
  const { boundary, ledger } = gate();
  const context = contextOf({ signal: AbortSignal.abort() });
  const refused = await outcomeOf(boundary.pass(context, EXEC, async () => 1));
  expect(refused.kind).toBe("cancelled");
  expect(ledger.of("exec_events")).toMatchObject([{ outcome: "cancelled", duration_ms: null }]);
});

test("a kept act ends when its keeper says so, once, and at the latest when its work throws", async () => {
  const { boundary, ledger } = gate();
  let kept: OpenAct | undefined;
  await boundary.pass(contextOf(), EXEC, async (permit) => {
    kept = permit.keep();
  });
  expect(ledger.of("exec_events")).toEqual([]);
  kept?.add({ exit_code: 0 });
  kept?.close("interrupted", "vm_gone");
  kept?.close("done");
  kept?.add({ exit_code: 9 });
  expect(ledger.of("exec_events")).toMatchObject([
    { outcome: "interrupted", error: "vm_gone", exit_code: 0 },
  ]);
  const failing = boundary.pass(contextOf(), EXEC, async (permit) => {
    kept = permit.keep();
    throw apiFailure("vm_gone", "gone");
  });
  await expect(failing).rejects.toThrow("gone");
  kept?.close("done");
  expect(ledger.of("exec_events").map(({ outcome }) => outcome)).toEqual(["interrupted", "failed"]);
});

test("an end that the ledger does not take is told by the log alone", async () => {
  const { boundary, ledger, log } = gate();
  const value = boundary.pass(contextOf(), EXEC, async () => {
    ledger.trouble.set("*", "ledger_away");
    return 7;
  });
  expect(await value).toBe(7);
  expect(log).toMatchObject([{ level: "error", message: "the end of an act is not in the ledger" }]);
});

test("what cannot be judged is not done, and leaves a row without its words", async () => {
  const { boundary, ledger, policy } = gate();
  const unfit = { ...EXEC, fields: { ...EXEC.fields, "process.exec.path": "x".repeat(20_000) } };
  let isDone = false;
  const attempt = () =>
    outcomeOf(
      boundary.pass(contextOf(), unfit, async () => {
        isDone = true;
      }),
    );
  expect(await attempt()).toMatchObject({
    kind: "invalid_input",
    message: /Cannot judge event "process.exec"/,
  });
  expect(ledger.of("security_decision_events")).toMatchObject([
    { action: "block", rule_id: "boundary.event_invalid", is_redacted: true },
  ]);
  expect(ledger.of("exec_events")).toMatchObject([{ outcome: "blocked" }]);
  ledger.trouble.set("*", "ledger_away");
  expect((await attempt()).kind).toBe("invalid_input");
  ledger.trouble.clear();
  policy.fault = new Error("no rules: /secret/path");
  const faulted = await outcomeOf(boundary.pass(contextOf(), EXEC, async () => 1));
  expect(faulted).toMatchObject({ kind: "policy", facts: { rule_id: "boundary.fault" } });
  expect(faulted.message).not.toContain("/secret/path");
  expect(isDone).toBe(false);
});

test.each([
  { state: "approved", outcome: "done", kind: undefined, retryable: undefined },
  { state: "denied", outcome: "denied", kind: "policy", retryable: false },
  { state: "expired", outcome: "expired", kind: "policy", retryable: false },
] as const)("an ask that is $state ends its act as $outcome", async ({ state, outcome, kind, retryable }) => {
  const { boundary, ledger, policy, asks } = gate();
  policy.rules(ruleOn("process.exec", "ask"));
  let isDone = false;
  const call = outcomeOf(
    boundary.pass(contextOf(), EXEC, async () => {
      isDone = true;
    }),
  );
  await expect.poll(() => asks.held.length).toBe(1);
  expect(isDone).toBe(false);
  expect(ledger.of("security_decision_events")).toMatchObject([{ action: "ask" }]);
  expect(asks.held[0]?.asked).toMatchObject({ title: "make test", vm: VM });
  asks.held[0]?.resolve(state, { note: "not today" });
  const end = await call;
  expect(end.kind).toBe(kind);
  expect(end.retryable).toBe(retryable);
  expect(isDone).toBe(state === "approved");
  expect(ledger.of("exec_events")).toMatchObject([{ outcome, decision: "ask" }]);
  if (kind === undefined) return;
  expect(end.facts).toEqual({ rule_id: "profiles.rules.guard", ask_id: "ask_abcdefghij234567" });
  expect(end.message).toContain("profiles.rules.guard");
  if (state === "denied") expect(end.message).toContain("not today");
});

test("a caller that leaves ends its ask; an ask that still waits is worth a retry", async () => {
  const { boundary, ledger, policy, asks } = gate();
  policy.rules(ruleOn("process.exec", "ask"));
  const leaving = new AbortController();
  const left = outcomeOf(boundary.pass(contextOf({ signal: leaving.signal }), EXEC, async () => 1));
  await expect.poll(() => asks.held.length).toBe(1);
  leaving.abort();
  expect(await left).toMatchObject({ kind: "policy", retryable: false });
  const waiting = outcomeOf(boundary.pass(contextOf(), EXEC, async () => 1));
  await expect.poll(() => asks.held.length).toBe(2);
  asks.held[1]?.resolve("cancelled");
  expect(await waiting).toMatchObject({ kind: "policy", retryable: true });
  expect(ledger.of("exec_events").map(({ outcome }) => outcome)).toEqual(["cancelled", "cancelled"]);
  asks.failure = apiFailure("quota", "Cannot ask: too many wait");
  expect(await outcomeOf(boundary.pass(contextOf(), EXEC, async () => 1))).toMatchObject({ kind: "quota" });
  expect(ledger.of("exec_events").at(-1)).toMatchObject({ outcome: "failed", error: "quota" });
});

test("an approval is bound to what was asked for, and to nothing that changes with each try", async () => {
  const { boundary, policy, asks } = gate();
  policy.rules(
    `${ruleOn("process.exec", "ask")}[profiles.rules.b]\naction = "ask"\nmatch = 'event.type == "vm.lifecycle"'\n`,
  );
  const digestOf = async (draft: typeof EXEC) => {
    const before = asks.held.length;
    void boundary.pass(contextOf(), draft, async () => 1);
    await expect.poll(() => asks.held.length).toBe(before + 1);
    asks.held.at(-1)?.resolve("approved");
    return asks.held.at(-1)?.asked.digest;
  };
  const asked = (over: object, vm = VM, job = JOB) =>
    digestOf(
      commandDraft(vm, job, "exec", { command: "make test", env: { TOKEN: "hidden-value" }, ...over }),
    );
  const digest = await digestOf(EXEC);
  expect(digest).toMatch(/^[0-9a-f]{64}$/);
  expect(await asked({}, VM, "job_zzzzzzzzzzzzzzzz")).toBe(digest);
  const others = [
    await asked({ command: "make tests" }),
    await asked({ user: "root" }),
    await asked({ cwd: "/" }),
    await asked({ env: { TOKEN: "another" } }),
    await asked({ stdin: { encoding: "utf8", data: "rm -rf /" } }),
    await asked({}, { ...VM, id: "vm_zzzzzzzzzzzzzzzz" }),
  ];
  expect(new Set([digest, ...others]).size).toBe(7);
  const create = (id: string, memory: number) =>
    digestOf({
      ...lifecycleDraft({ ...VM, id }, "create", "user uid 1000"),
      isNew: true,
      bound: () => ({ memory }),
    });
  expect(await create("vm_aaaaaaaaaaaaaaaa", 1)).toBe(await create("vm_bbbbbbbbbbbbbbbb", 1));
  expect(await create("vm_aaaaaaaaaaaaaaaa", 1)).not.toBe(await create("vm_aaaaaaaaaaaaaaaa", 2));
});

test("a refused create is in the host's ledger: a VM that never is has none", async () => {
  const { boundary, ledger, policy } = gate();
  policy.rules(ruleOn("vm.lifecycle", "block"));
  const draft = { ...lifecycleDraft(VM, "create", "user uid 1000"), isNew: true as const };
  expect(await outcomeOf(boundary.pass(contextOf(), draft, async () => 1))).toMatchObject({ kind: "policy" });
  expect([...ledger.rows.keys()]).toEqual([HOST_LEDGER]);
  expect(ledger.of("lifecycle_events")).toMatchObject([{ action: "create", outcome: "blocked" }]);
});

test("what nobody asked for is recorded and detected, and never refused", () => {
  const { boundary, ledger, policy, log } = gate();
  policy.rules(ruleOn("vm.lifecycle", "block"));
  boundary.note(lifecycleDraft(VM, "stop", "service", "idle"), "done");
  expect(ledger.of("lifecycle_events", VM.id)).toMatchObject([
    {
      action: "stop",
      detail: "idle",
      requester: "service",
      trace_id: null,
      outcome: "done",
      decision: "block",
    },
  ]);
  expect(ledger.of("security_rule_events")).toHaveLength(1);
  ledger.trouble.set("*", "ledger_away");
  boundary.note(lifecycleDraft(VM, "stop", "service", "idle"), "done");
  expect(log).toMatchObject([{ level: "error", message: "what happened is not in the ledger" }]);
});

test("no secret is in any row, whatever it came in by, nor the half of one where a text was cut", async () => {
  const { boundary, ledger, redactor, policy } = gate();
  policy.rules(ruleOn("process.exec_complete", "allow", ' && process.exec.stdout != ""'));
  const secret = "sk-live-0123456789abcdefghijklmnop";
  redactor.add(`credential:blake3:${"ab".repeat(32)}`, secret);
  const context = contextOf({ client: `c ${secret}`, turn: secret });
  const draft = commandDraft({ ...VM, name: secret }, JOB, "exec", {
    command: `curl -H ${secret} x\ud800`,
    cwd: `/tmp/${secret}`,
  });
  const end = { exit_code: 0, signal: null, timed_out: false, out_of_memory: null };
  const counted = { ...end, agent_us: 1, stdout_bytes: 70_000, stderr_bytes: 4_100, truncated: false };
  const head = (length: number) => Buffer.from("x".repeat(length) + secret + "y".repeat(2_000));
  // One is cut by the first 64 KiB, the other by its preview.
  const output = { stdout: head(65_536 - 10).subarray(0, 65_537), stderr: head(4_096 - 10) };
  await boundary.pass(context, draft, async (permit) => {
    permit.add(endFacts(counted, output));
  });
  await boundary.judgeResult(context, completeDraft(draft, counted, output), ALLOWED);
  expect(ledger.text).not.toContain(secret);
  expect(ledger.text).not.toContain(secret.slice(0, 9));
  expect(ledger.text).not.toContain(secret.slice(-9));
  expect(ledger.of("exec_events")[0]?.command).toContain("\ufffd");
  expect(ledger.of("exec_events")[0]?.stderr_preview).toHaveLength(4_096);
  for (const row of ledger.of("security_decision_events")) expect(row.is_redacted).toBe(true);
});

test("rows of one request share its trace, and acts do not wait for each other", async () => {
  const { boundary, ledger } = gate();
  const first = defer<void>();
  const context = contextOf();
  const slow = boundary.pass(context, EXEC, () => first.promise);
  await boundary.pass(context, fileDraft("mkdir", { vm: VM, path: "a" }), async () => 1);
  first.resolve();
  await slow;
  const traces = [
    ...ledger.of("exec_events"),
    ...ledger.of("fs_events"),
    ...ledger.of("security_decision_events"),
  ];
  expect(new Set(traces.map(({ trace_id }) => trace_id)).size).toBe(1);
  expect(new Set(traces.map(({ event_id }) => event_id)).size).toBe(2);
});
