import type { PolicyEdit } from "@capsem/policy";
import { expect, test } from "vitest";
import { POLICY_FILE_LIMITS } from "../limits.ts";
import { PolicyChanges } from "./policy-changes.ts";
import { CONTEXT, fakeBoundary, refusal, type TempPolicy, useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();
const set = (key: string, value: unknown): PolicyEdit => ({ kind: "set", key, value });
const GUARD = `[profiles.rules.guard]
action = "block"
match = 'settings.key == "confinement.allow_unconfined"'
reason = "confinement stays"
`;

async function changing(rig: TempPolicy) {
  const store = await rig.open();
  const { boundary, acts } = fakeBoundary(store);
  return { store, acts, changes: new PolicyChanges(store, boundary) };
}

test("each key of a batch is one act, with what it was and what it is", async () => {
  const { store, acts, changes } = await changing(temp({ "settings.toml": "[limits]\nrunning_max = 4\n" }));
  const { digest: before } = store.snapshot();
  const fields = { action: "ask", match: "vm.name == 'a'" };
  await changes.edit(CONTEXT, [
    set("limits.running_max", 5),
    { kind: "put_rule", id: "profiles.rules.one", fields },
    set("limits.running_max", 6),
  ]);
  const digests = { digest_before: before, digest_after: store.snapshot().digest };
  const rule = `[profiles.rules.one]\naction = "ask"\nmatch = "vm.name == 'a'"\n`;
  // The last act ends first: it is inside the others.
  expect(acts.map(({ facts, outcome, title }) => ({ ...facts, outcome, title }))).toEqual([
    {
      ...{
        key: "profiles.rules.one",
        source: "user",
        before: null,
        after: rule,
        ...digests,
        outcome: "done",
      },
      title: "profiles.rules.one: ask vm.name == 'a'",
    },
    {
      ...{ key: "limits.running_max", source: "user", before: "4", after: "6", ...digests, outcome: "done" },
      title: "limits.running_max: set to 6",
    },
  ]);
});

test.each([
  ["alone", [set("confinement.allow_unconfined", true)]],
  ["first", [set("confinement.allow_unconfined", true), set("limits.running_max", 5)]],
  [
    "last",
    [set("limits.running_max", 5), set("limits.idle_secs", 5), set("confinement.allow_unconfined", true)],
  ],
  [
    "with the rule's own removal",
    [{ kind: "delete_rule", id: "profiles.rules.guard" } as const, set("confinement.allow_unconfined", true)],
  ],
])("a key that a rule guards is refused %s, and nothing of its batch is done", async (_where, edits) => {
  const rig = temp({ "settings.toml": GUARD });
  const { store, acts, changes } = await changing(rig);
  const { digest } = store.snapshot();
  expect(await refusal(changes.edit(CONTEXT, edits))).toMatchObject({
    kind: "policy",
    message: expect.stringContaining("confinement stays"),
  });
  expect([rig.read("settings.toml"), store.snapshot().digest]).toEqual([GUARD, digest]);
  expect(acts.filter(({ outcome }) => outcome === "done")).toEqual([]);
  expect(acts.filter(({ outcome }) => outcome === "blocked").map(({ key }) => key)).toEqual([
    "confinement.allow_unconfined",
  ]);
});

test("without the guard the same batch is done", async () => {
  const { store, changes } = await changing(temp());
  await changes.edit(CONTEXT, [set("limits.running_max", 5), set("confinement.allow_unconfined", true)]);
  expect(store.settings()).toMatchObject({ "confinement.allow_unconfined": true, "limits.running_max": 5 });
});

test("what cannot be done is refused before anybody is asked", async () => {
  const { acts, changes } = await changing(temp());
  expect(await refusal(changes.edit(CONTEXT, [set("limits.running_max", 0)]))).toMatchObject({
    kind: "invalid_input",
    message: 'Cannot change the settings: "limits.running_max" takes a whole number from 1 to 256',
    faults: [{ code: "bad_value", file: null, line: null, subject: "limits.running_max" }],
  });
  expect(acts).toEqual([]);
});

test("two changes of one key at once: each says what it found", async () => {
  const { acts, changes } = await changing(temp());
  await Promise.all([5, 6, 7].map((value) => changes.edit(CONTEXT, [set("limits.running_max", value)])));
  expect(acts.map(({ facts }) => [facts.before, facts.after])).toEqual([
    [null, "5"],
    ["5", "6"],
    ["6", "7"],
  ]);
});

test("an edit by hand is noted, key by key, and so is what a reload finds", async () => {
  const rig = temp({ "settings.toml": `${GUARD}[limits]\nrunning_max = 4\n` });
  const { store, acts, changes } = await changing(rig);
  rig.write("settings.toml", "[confinement]\nallow_unconfined = true\n[limits]\nrunning_max = 4\n");
  await store.refresh();
  // It has happened: the rule that guards the key records it, and refuses nothing.
  expect(
    acts.map(({ key, source, outcome, facts }) => [key, source, outcome, facts.before, facts.after]),
  ).toEqual([
    ["confinement.allow_unconfined", "user", "done", null, "true"],
    ["profiles.rules.guard", "user", "done", GUARD, null],
  ]);
  acts.length = 0;
  rig.write("corp.toml", "[limits]\nrunning_max = 2\n");
  await changes.reload(CONTEXT);
  expect(acts.map(({ key, source, outcome }) => [key, source, outcome])).toEqual([
    ["limits.running_max", "corp", "done"],
    ["corp.reload", "corp", "done"],
  ]);
  expect(acts.at(-1)?.facts).toMatchObject({ digest_after: store.snapshot().digest });
});

test("a reload of a faulty file fails with its faults and changes nothing", async () => {
  const rig = temp({ "corp.toml": "[limits]\nrunning_max = 2\n" });
  const { store, acts, changes } = await changing(rig);
  rig.write("corp.toml", "[limits]\nrunning_max = 0\n");
  expect(await refusal(changes.reload(CONTEXT))).toMatchObject({
    kind: "invalid_input",
    message: expect.stringMatching(/^Cannot read the policy again: corp\.toml:2:15: /),
    faults: [{ file: "corp.toml", line: 2, column: 15 }],
  });
  expect(acts).toMatchObject([{ key: "corp.reload", outcome: "failed" }]);
  expect(store.settings()["limits.running_max"]).toBe(2);
});

test("a rule can close the reload, and nothing is read then", async () => {
  const rig = temp({
    "settings.toml": `[profiles.rules.no-reload]\naction = "block"\nmatch = 'settings.key == "corp.reload"'\n`,
  });
  const { store, changes } = await changing(rig);
  rig.write("corp.toml", "[limits]\nrunning_max = 2\n");
  expect(await refusal(changes.reload(CONTEXT))).toMatchObject({ kind: "policy" });
  expect(store.settings()["limits.running_max"]).toBe(8);
});

test("a file exchanged for a large one is noted up to a bound, which says what is left", async () => {
  const rig = temp();
  const { store, acts } = await changing(rig);
  const count = POLICY_FILE_LIMITS.notedKeysMax + 5;
  const rules = Array.from(
    { length: count },
    (_, index) => `[profiles.rules.r${index}]\naction = "block"\nmatch = "vm.id == 'x'"\n`,
  );
  rig.write("settings.toml", rules.join("\n"));
  await store.refresh();
  expect(acts).toHaveLength(POLICY_FILE_LIMITS.notedKeysMax);
  expect(acts[0]?.title).toContain("with 5 keys that are not listed");
});
