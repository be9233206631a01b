import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { PolicyEdit } from "@capsem/policy";
import { expect, test } from "vitest";
import { writeFileAtomic } from "../home/atomic-file.ts";
import { POLICY_FILE_LIMITS } from "../limits.ts";
import { replaceFile } from "./replace-file.ts";
import { refusal, type TempPolicy, useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();
const set = (key: string, value: unknown): PolicyEdit => ({ kind: "set", key, value });
const RULE = `[profiles.rules.no-force]
action = "block" # never
match = 'process.command.matches("git push .*--force")'
`;
const put = (name: string, match: string, action = "block"): PolicyEdit => ({
  kind: "put_rule",
  id: `profiles.rules.${name}`,
  fields: { action, match },
});

function writeMachineCorp({ machineCorp }: TempPolicy, text: string): void {
  mkdirSync(dirname(machineCorp), { recursive: true });
  writeFileSync(machineCorp, text, { mode: 0o600 });
}

test("without files the defaults hold, and the digest is a SHA-256", async () => {
  const store = await temp().open();
  expect(store.settings()["limits.running_max"]).toBe(8);
  expect(store.snapshot().digest).toMatch(/^[0-9a-f]{64}$/);
  expect(store.snapshot().preset).toBe("developer");
});

test("the environment's pool size wins over the files, and only over that", async () => {
  const rig = temp({ "settings.toml": "[limits]\npool_size = 3\nrunning_max = 4\n" });
  expect((await rig.openWhole()).settings()).toMatchObject({ "limits.pool_size": 3 });
  const store = await rig.openWhole("0");
  expect(store.settings()).toMatchObject({ "limits.pool_size": 0, "limits.running_max": 4 });
  await store.edit([set("limits.pool_size", 5)]);
  expect(store.settings()).toMatchObject({ "limits.pool_size": 0 });
  for (const bad of ["many", "-1", "17", "1.5"]) {
    await expect(rig.openWhole(bad)).rejects.toMatchObject({ kind: "settings_invalid" });
  }
});

test("a start with faulty files names every fault with its place", async () => {
  const rig = temp({
    "settings.toml": '[limits]\npool_sise = 1\nrunning_max = 0\n\n[profiles]\nrule_files = ["a.toml"]\n',
    "corp.toml": '[corp.rules.x]\naction = "block"\nmatch = "proces.command == 1"\n',
  });
  const { kind, message } = await refusal(rig.open());
  expect(kind).toBe("settings_invalid");
  const lines = message.split("\n").map((line) => line.trim());
  expect(lines).toHaveLength(4);
  expect(lines[1]).toMatch(/^corp\.toml:3:10: .*proces/);
  expect(lines[2]).toMatch(/^settings\.toml:2:1: no setting "limits\.pool_sise"/);
  expect(lines[3]).toMatch(/^settings\.toml:3:15: "limits\.running_max" takes/);
});

test.each<[what: string, files: Record<string, string>, says: RegExp]>([
  ["is missing", {}, /a\.toml: Cannot read ".*a\.toml": it does not exist/],
  ["has a fault", { "a.toml": `${RULE}order = 1\n` }, /a\.toml:4:1: "order" is written "priority"/],
  ["holds settings", { "a.toml": "[limits]\npool_size = 1\n" }, /a\.toml:2:1: a rule file holds rules only/],
  [
    "holds a rule twice",
    { "a.toml": `\n${RULE}` },
    /a\.toml:2:\d+: rule "profiles\.rules\.no-force" is in two/,
  ],
])("a rule file that %s refuses the start", async (_what, files, says) => {
  const settings = `[profiles]\nrule_files = ["a.toml"]\n\n${RULE}`;
  const { message } = await refusal(temp({ ...files, "settings.toml": settings }).open());
  expect(message).toMatch(says);
});

test("the machine's corp.toml hides the one in the home, also when it cannot be used", async () => {
  const rig = temp({ "corp.toml": "[limits]\nrunning_max = 2\n" });
  expect((await rig.open()).settings()["limits.running_max"]).toBe(2);
  writeMachineCorp(rig, "[limits]\nrunning_max = 3\n");
  expect((await rig.open()).settings()["limits.running_max"]).toBe(3);
  writeMachineCorp(rig, "[limits]\nrunning_max = 0\n");
  expect((await refusal(rig.open())).message).toContain("corp.toml:2:15");
});

test("an edit keeps comments and order, holds at once, and is there after a restart", async () => {
  const text = `# mine\n[limits]\n# large machine\nrunning_max = 4 # four\n\n${RULE}`;
  const rig = temp({ "settings.toml": text });
  const store = await rig.open();
  const before = store.snapshot();
  await store.edit([set("limits.running_max", 5), put("no-curl", 'process.command.startsWith("curl")')]);
  expect(rig.read("settings.toml")).toContain("# large machine\nrunning_max = 5 # four\n");
  expect(rig.read("settings.toml")).toContain('action = "block" # never');
  expect(store.settings()["limits.running_max"]).toBe(5);
  expect(before.settings.values["limits.running_max"]).toBe(4);
  expect(before.digest).not.toBe(store.snapshot().digest);
  expect((await rig.open()).snapshot().digest).toBe(store.snapshot().digest);
  await store.edit([
    { kind: "reset", key: "limits.running_max" },
    { kind: "delete_rule", id: "profiles.rules.no-curl" },
  ]);
  expect((await rig.open()).settings()["limits.running_max"]).toBe(8);
  expect(readdirSync(rig.home)).toEqual(["settings.toml"]);
});

test.each<[what: string, edits: PolicyEdit[], kind: string, codes: string[]]>([
  ["a locked key", [set("limits.idle_secs", 5), set("limits.running_max", 3)], "locked", ["locked"]],
  [
    "a key of the corporation",
    [set("limits.idle_secs", 5), set("corp.rule_files", [])],
    "locked",
    ["locked"],
  ],
  [
    "a wrong value",
    [set("limits.idle_secs", 5), set("limits.pool_size", -1)],
    "invalid_input",
    ["bad_value"],
  ],
  ["an unknown key", [set("limits.idle_secs", 5), set("limits.idel", 1)], "invalid_input", ["unknown_key"]],
  ["a bad rule", [set("limits.idle_secs", 5), put("x", "vm.nam == 1")], "invalid_input", ["unknown_field"]],
  ["no such rule", [{ kind: "delete_rule", id: "profiles.rules.none" }], "rule_not_found", ["unknown_rule"]],
  ["the corporation's rule", [{ kind: "delete_rule", id: "corp.rules.one" }], "locked", ["locked"]],
  ["a built-in rule", [{ kind: "delete_rule", id: "default.metadata_hosts" }], "locked", ["locked"]],
  ["a rule of another file", [put("elsewhere", "true")], "locked", ["locked"]],
  ["a rule file that is not there", [set("profiles.rule_files", ["b.toml"])], "invalid_input", ["bad_file"]],
  ["a rule file by a link", [set("profiles.rule_files", ["link.toml"])], "invalid_input", ["bad_file"]],
])("a batch with %s changes nothing", async (_what, edits, kind, codes) => {
  const text = '[profiles]\nrule_files = ["a.toml"]\n';
  const rig = temp({
    "settings.toml": text,
    "a.toml": '[profiles.rules.elsewhere]\naction = "block"\nmatch = "false"\n',
    "corp.toml": '[limits]\nrunning_max = 2\n[corp.rules.one]\naction = "block"\nmatch = "false"\n',
  });
  symlinkSync(join(rig.home, "a.toml"), join(rig.home, "link.toml"));
  const store = await rig.open();
  const { digest } = store.snapshot();
  const refused = await refusal(store.edit(edits));
  expect([refused.kind, refused.faults.map(({ code }) => code)]).toEqual([kind, codes]);
  expect(refused.message).toMatch(/^Cannot /);
  expect(rig.read("settings.toml")).toBe(text);
  expect(store.snapshot().digest).toBe(digest);
  // What may be judged without a file is told before anybody is asked.
  if (codes[0] !== "bad_file") expect((await refusal(store.check(edits))).kind).toBe(kind);
});

test("what was written by hand since the last look is not lost by an edit", async () => {
  const rig = temp({ "settings.toml": "[limits]\nrunning_max = 4\n" });
  const store = await rig.open();
  const moves: string[] = [];
  store.onHandEdit(({ before, after }) =>
    moves.push(`${before.snapshot.settings.values["limits.running_max"]} ${after.user.whole.rules.length}`),
  );
  rig.write("settings.toml", `# by hand\n[limits]\nrunning_max = 6\n${RULE}`);
  await store.edit([set("limits.idle_secs", 60)]);
  expect(rig.read("settings.toml")).toContain("# by hand");
  expect(store.settings()).toMatchObject({ "limits.running_max": 6, "limits.idle_secs": 60 });
  expect(store.snapshot().rules.some(({ id }) => id === "profiles.rules.no-force")).toBe(true);
  expect(moves).toEqual(["4 1"]);
});

test("somebody who saves while an edit is being written is not overwritten", async () => {
  const rig = temp({ "settings.toml": "[limits]\nrunning_max = 4\n" });
  let saves = 0;
  const store = await rig.open({
    replace: (path, text, isCurrent) =>
      replaceFile(path, text, async () => {
        // The new bytes are on the disk, and a person presses the key.
        if (saves++ < 2) rig.write("settings.toml", `[limits]\nrunning_max = ${4 + saves}\n`);
        return isCurrent();
      }),
  });
  await store.edit([set("limits.idle_secs", 60)]);
  expect(saves).toBe(3);
  expect((await rig.open()).settings()).toMatchObject({ "limits.running_max": 6, "limits.idle_secs": 60 });
});

test("without the last look the other's text would be lost: the same race, the look left out", async () => {
  const rig = temp({ "settings.toml": "[limits]\nrunning_max = 4\n" });
  const store = await rig.open({
    replace: (path, text) =>
      replaceFile(path, text, async () => {
        rig.write("settings.toml", "[limits]\nrunning_max = 5\n");
        return true;
      }),
  });
  await store.edit([set("limits.idle_secs", 60)]);
  expect((await rig.open()).settings()).toMatchObject({ "limits.running_max": 4 });
});

test("a file that somebody writes all the time is given up, unchanged by us", async () => {
  const rig = temp();
  let saves = 0;
  const store = await rig.open({
    replace: (path, text, isCurrent) =>
      replaceFile(path, text, () => {
        rig.write("settings.toml", `[limits]\nidle_secs = ${++saves}\n`);
        return isCurrent();
      }),
  });
  expect(await refusal(store.edit([set("limits.running_max", 5)]))).toMatchObject({ kind: "unavailable" });
  expect(saves).toBe(POLICY_FILE_LIMITS.writeTries);
  expect(rig.read("settings.toml")).toBe(`[limits]\nidle_secs = ${saves}\n`);
});

test("a faulty edit by hand keeps what was in force, shows its faults, and takes no edits until it is mended", async () => {
  const rig = temp({ "settings.toml": "[limits]\nrunning_max = 4\n" });
  const store = await rig.open();
  const { digest } = store.snapshot();
  rig.write("settings.toml", "[limits]\nrunning_max = 400\n");
  expect(await store.refresh()).toMatchObject({ kind: "refused" });
  expect(await store.refresh()).toMatchObject({ kind: "refused" });
  expect(store.snapshot().digest).toBe(digest);
  expect(store.faults).toMatchObject([{ file: "settings.toml", line: 2, column: 15, code: "bad_value" }]);
  expect(rig.log.filter(({ level }) => level === "warning")).toHaveLength(1);
  const refused = await refusal(store.edit([set("limits.idle_secs", 9)]));
  expect(refused).toMatchObject({ kind: "invalid_input", faults: [{ line: 2 }] });
  expect(rig.read("settings.toml")).toContain("400");
  rig.write("settings.toml", "[limits]\nrunning_max = 40\n");
  await store.edit([set("limits.idle_secs", 9)]);
  expect(store.faults).toEqual([]);
  expect(store.settings()).toMatchObject({ "limits.running_max": 40, "limits.idle_secs": 9 });
});

test("a faulty corp.toml by hand keeps the lock that was in force", async () => {
  const rig = temp({ "corp.toml": "[limits]\nrunning_max = 2\n" });
  const store = await rig.open();
  rig.write("corp.toml", "[limits\n");
  await store.refresh();
  expect(store.corpFaults).toMatchObject([{ file: "corp.toml", line: 2, code: "syntax" }]);
  expect(store.settings()["limits.running_max"]).toBe(2);
  rig.write("corp.toml", "");
  await store.refresh();
  expect([store.corpFaults, store.settings()["limits.running_max"]]).toEqual([[], 8]);
});

test("a service that dies between writing and renaming leaves the old settings, whole", async () => {
  const text = "# mine\n[limits]\nrunning_max = 4\n";
  const rig = temp({ "settings.toml": text });
  const store = await rig.open({
    async replace(path, next) {
      await writeFileAtomic(`${path}.next`, next);
      throw new Error("the machine stopped");
    },
  });
  const { digest } = store.snapshot();
  await expect(store.edit([set("limits.running_max", 5)])).rejects.toThrow("the machine stopped");
  expect(store.snapshot().digest).toBe(digest);
  expect(rig.read("settings.toml")).toBe(text);
  expect(readdirSync(rig.home)).toContain("settings.toml.next");
  const next = await rig.open();
  expect(next.snapshot().digest).toBe(digest);
  await next.edit([set("limits.running_max", 6)]);
  expect(readdirSync(rig.home)).toEqual(["settings.toml"]);
  expect((await rig.open()).settings()["limits.running_max"]).toBe(6);
});

test("a disk that takes nothing changes nothing, and the next edit is made", async () => {
  const rig = temp({ "settings.toml": RULE });
  let isFull = true;
  const store = await rig.open({
    replace(path, text, isCurrent) {
      if (isFull) return Promise.reject(Object.assign(new Error("full"), { code: "ENOSPC" }));
      return replaceFile(path, text, isCurrent);
    },
  });
  await expect(store.edit([set("limits.running_max", 5)])).rejects.toMatchObject({ code: "ENOSPC" });
  expect([rig.read("settings.toml"), store.settings()["limits.running_max"]]).toEqual([RULE, 8]);
  isFull = false;
  await store.edit([set("limits.running_max", 5)]);
  expect(store.settings()["limits.running_max"]).toBe(5);
});

test("what files still say is not parsed again for an edit, and what they say now is", async () => {
  const rig = temp({
    "corp.toml": "[limits]\nrunning_max = 4\n",
    "mine.toml": RULE,
    "settings.toml": '[profiles]\nrule_files = ["mine.toml"]\n',
  });
  const store = await rig.open();
  const mine = join(rig.home, "mine.toml");
  const { before, after } = await store.edit([put("two", 'vm.name == "b"')]);
  expect(after.corp.main).toBe(before.corp.main);
  expect(after.user.parsed.get(mine)?.layer).toBe(before.user.parsed.get(mine)?.layer);
  expect(after.user.main.rules.map(({ name }) => name)).toEqual(["two"]);
  rig.write("mine.toml", RULE.replace("action", "priority = 30\naction"));
  await store.refresh();
  expect(store.state.user.main).toBe(after.user.main);
  expect(store.state.user.whole.rules.map(({ priority }) => priority)).toEqual([10, 30]);
});

test("the last look comes when the new bytes are written and the old ones still stand", async () => {
  const { home, write, read } = temp({ "settings.toml": "old" });
  const path = join(home, "settings.toml");
  const seen: string[] = [];
  const look = async () => {
    seen.push(read("settings.toml"), read("settings.toml.next"));
    return false;
  };
  expect(await replaceFile(path, "new", look)).toBe(false);
  expect(seen).toEqual(["old", "new"]);
  expect([read("settings.toml"), readdirSync(home)]).toEqual(["old", ["settings.toml"]]);
  const fails = () => Promise.reject(new Error("cannot look"));
  await expect(replaceFile(path, "new", fails)).rejects.toThrow("cannot look");
  write("settings.toml.next", "left behind");
  expect(await replaceFile(path, "new", async () => true)).toBe(true);
  expect([read("settings.toml"), readdirSync(home)]).toEqual(["new", ["settings.toml"]]);
});

test("200 edits at once are made one after another, and none is lost", async () => {
  const rig = temp({ "settings.toml": "# mine\n[limits]\nrunning_max = 4\n" });
  const store = await rig.open();
  const moves = await Promise.all(
    Array.from({ length: 200 }, (_, index) => store.edit([put(`rule-${index}`, `vm.name == "vm-${index}"`)])),
  );
  const again = await rig.open();
  expect(again.state.user.whole.rules).toHaveLength(200);
  expect(again.snapshot().digest).toBe(store.snapshot().digest);
  expect(rig.read("settings.toml").startsWith("# mine\n[limits]\nrunning_max = 4\n")).toBe(true);
  const chain = moves.map(
    ({ before, after }) => after.user.whole.rules.length - before.user.whole.rules.length,
  );
  expect(new Set(chain)).toEqual(new Set([1]));
  expect(new Set(moves.map(({ after }) => after.snapshot.digest)).size).toBe(200);
}, 120_000);
