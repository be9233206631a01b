import type { PolicyEdit } from "@capsem/policy";
import { expect, test } from "vitest";
import { gate, outcomeOf } from "../boundary/testing/gate.ts";
import { PolicyChanges } from "./policy-changes.ts";
import { CONTEXT, useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();
const RULE = "profiles.rules.one";
const put = (match: string): PolicyEdit => ({ kind: "put_rule", id: RULE, fields: { action: "ask", match } });

/** Changes of a home, judged by rules that the test gives. */
async function changing(action: string, files: Readonly<Record<string, string>> = {}) {
  const store = await temp(files).open();
  const { boundary, policy, ...rest } = gate();
  policy.rules(
    `[profiles.rules.guard]\naction = "${action}"\nmatch = 'event.type == "settings.change"'\nreason = "settled"\n`,
  );
  return { changes: new PolicyChanges(store, boundary), store, policy, ...rest };
}

const STORED = `[limits]\nidle_secs = 70\n\n[${RULE}]\naction = "ask"\nmatch = 'vm.name == "a"'\n`;

test.each<[PolicyEdit, string, string | null]>([
  [put('vm.name == "b"'), "write the rule", `[${RULE}]\naction = "ask"\nmatch = "vm.name == \\"b\\""\n`],
  [{ kind: "delete_rule", id: RULE }, "delete the rule", null],
  [{ kind: "set", key: "limits.idle_secs", value: 80 }, "change the setting", "80"],
  [{ kind: "reset", key: "limits.idle_secs" }, "reset the setting", null],
])("a refusal says what cannot be done, and its row what was asked for: %j", async (edit, does, after) => {
  const { changes, ledger } = await changing("block", { "settings.toml": STORED });
  expect(await outcomeOf(changes.edit(CONTEXT, [edit]))).toMatchObject({
    kind: "policy",
    message: `Cannot ${does}: blocked by profiles.rules.guard: settled`,
  });
  const before = edit.kind.endsWith("_rule") ? expect.stringContaining('vm.name == "a"') : "70";
  expect(ledger.of("policy_mutations")).toMatchObject([{ outcome: "blocked", before, after, error: null }]);
});

test("a reload that a rule refuses is called one", async () => {
  const { changes } = await changing("block");
  expect(await outcomeOf(changes.reload(CONTEXT))).toMatchObject({
    message: "Cannot read the policy again: blocked by profiles.rules.guard: settled",
  });
});

test("the attack: without its value an approval would be for every value; an ask is for the one that was shown", async () => {
  const { changes, asks } = await changing("ask");
  const digests: string[] = [];
  for (const value of [70, 80, 80]) {
    const held = outcomeOf(changes.edit(CONTEXT, [{ kind: "set", key: "limits.idle_secs", value }]));
    await expect.poll(() => asks.held.length).toBe(digests.length + 1);
    const ask = asks.held[digests.length];
    digests.push(ask?.asked.digest ?? "");
    ask?.resolve("denied");
    expect((await held).kind).toBe("policy");
  }
  expect(digests[0]).not.toBe(digests[1]);
  expect(digests[1]).toBe(digests[2]);
});

test("a change that fails says why in its row, without the secrets of the words", async () => {
  const { changes, store, ledger, redactor } = await changing("allow");
  redactor.add("credential:blake3:x", "canary-of-the-disk");
  store.edit = async () => {
    throw new Error("a mistake of ours");
  };
  await changes.edit(CONTEXT, [put("true")]).catch(() => undefined);
  expect(ledger.of("policy_mutations")).toMatchObject([
    { outcome: "failed", error: expect.stringMatching(/^internal: Cannot finish the request/) },
  ]);
  store.edit = async () => {
    throw Object.assign(new Error("no"), { code: "ENOSPC" });
  };
  await changes.edit(CONTEXT, [put("true")]).catch(() => undefined);
  expect(ledger.of("policy_mutations").at(-1)?.error).toBe(
    "disk_full: Cannot finish the request: the disk is full",
  );
});
