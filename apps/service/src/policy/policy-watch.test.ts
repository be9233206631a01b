import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterEach, expect, test } from "vitest";
import type { PolicyStore } from "./policy-store.ts";
import { PolicyWatch } from "./policy-watch.ts";
import { type TempPolicy, useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();
const watches: PolicyWatch[] = [];
afterEach(() => {
  for (const watch of watches.splice(0)) watch.close();
});

interface Watching {
  readonly store: PolicyStore;
  /** How often it was called. */
  calls(): number;
}

async function watching(rig: TempPolicy): Promise<Watching> {
  const store = await rig.open();
  let calls = 0;
  const changed = async () => {
    calls += 1;
    await store.refresh();
  };
  const log = () => undefined;
  watches.push(new PolicyWatch({ files: () => store.files, changed, log }));
  return { store, calls: () => calls };
}

const runningMax = (store: PolicyStore) => store.settings()["limits.running_max"];
const poll = <T>(read: () => T) => expect.poll(read, { timeout: 10_000, interval: 20 });

test("a file that is made, written, exchanged and removed by hand holds without being asked for", async () => {
  const rig = temp();
  const { store } = await watching(rig);
  rig.write("settings.toml", "[limits]\nrunning_max = 3\n");
  await poll(() => runningMax(store)).toBe(3);
  rig.write("settings.toml~", "[limits]\nrunning_max = 4\n");
  renameSync(join(rig.home, "settings.toml~"), join(rig.home, "settings.toml"));
  await poll(() => runningMax(store)).toBe(4);
  rig.write("corp.toml", "[limits]\nrunning_max = 2\n");
  await poll(() => runningMax(store)).toBe(2);
  rmSync(join(rig.home, "corp.toml"));
  await poll(() => runningMax(store)).toBe(4);
  rmSync(join(rig.home, "settings.toml"));
  await poll(() => runningMax(store)).toBe(8);
});

test("many writes at once are one look, other files are none, and neither is what we write", async () => {
  const rig = temp();
  const { store, calls } = await watching(rig);
  for (let count = 0; count < 50; count++)
    rig.write("settings.toml", `[limits]\nrunning_max = ${count + 1}\n`);
  await poll(() => runningMax(store)).toBe(50);
  expect(calls()).toBe(1);
  for (let count = 0; count < 50; count++) rig.write("notes.txt", String(count));
  let moves = 0;
  store.onHandEdit(() => {
    moves += 1;
  });
  await store.edit([{ kind: "set", key: "limits.running_max", value: 7 }]);
  // Ours is looked at too, and is what is known.
  await poll(calls).toBe(2);
  expect([moves, runningMax(store)]).toEqual([0, 7]);
});

test("rule files are watched where they lie, from when they are named to when they are not", async () => {
  const rig = temp();
  mkdirSync(join(rig.home, "rules"));
  const ruleOf = (reason: string) =>
    rig.write(
      "rules/a.toml",
      `[profiles.rules.one]\naction = "block"\nmatch = "vm.id == 'x'"\nreason = "${reason}"\n`,
    );
  const reasons = (store: PolicyStore) => store.state.user.whole.rules.map(({ reason }) => reason);
  ruleOf("first");
  const { store, calls } = await watching(rig);
  rig.write("settings.toml", '[profiles]\nrule_files = ["rules/a.toml"]\n');
  await poll(() => reasons(store)).toEqual(["first"]);
  ruleOf("second");
  await poll(() => reasons(store)).toEqual(["second"]);
  rmSync(join(rig.home, "rules"), { recursive: true });
  await poll(() => store.faults.length).toBe(1);
  expect(reasons(store)).toEqual(["second"]);
  mkdirSync(join(rig.home, "rules"));
  ruleOf("third");
  await poll(() => reasons(store)).toEqual(["third"]);
  expect(store.faults).toEqual([]);
  expect(calls()).toBeGreaterThan(3);
});

test("the machine's corp.toml counts from when its folder is made", async () => {
  const rig = temp();
  const { store } = await watching(rig);
  mkdirSync(dirname(rig.machineCorp));
  writeFileSync(rig.machineCorp, "[limits]\nrunning_max = 2\n", { mode: 0o600 });
  await poll(() => runningMax(store)).toBe(2);
  writeFileSync(rig.machineCorp, "[limits]\nrunning_max = 0\n");
  await poll(() => store.corpFaults.length).toBe(1);
  expect(runningMax(store)).toBe(2);
});

test("nothing is looked at after the end", async () => {
  const rig = temp();
  const { store, calls } = await watching(rig);
  rig.write("settings.toml", "[limits]\nrunning_max = 3\n");
  for (const watch of watches) watch.close();
  const other = await watching(rig);
  rig.write("settings.toml", "[limits]\nrunning_max = 4\n");
  await poll(() => runningMax(other.store)).toBe(4);
  expect([calls(), runningMax(store)]).toEqual([0, 8]);
});
