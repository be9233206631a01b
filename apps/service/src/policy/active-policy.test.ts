import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import { SecretRedactor } from "../credential/redactor.ts";
import { ActivePolicy, showingPolicy } from "./active-policy.ts";
import { type TempPolicy, uid, useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();
const EDIT = [{ kind: "set", key: "limits.running_max", value: 5 }] as const;

async function showing(rig: TempPolicy, running: string[], redactor = new SecretRedactor()) {
  const store = await rig.open();
  for (const id of running) mkdirSync(join(rig.layout.vms, id), { recursive: true, mode: 0o700 });
  const { layout } = rig;
  const log = (level: string, message: string, fields = {}) =>
    void rig.log.push({ level, message, ...fields });
  const active = new ActivePolicy({
    ...{ layout, uid, log, redactor, running: () => running },
    snapshot: () => store.snapshot(),
  });
  store.hold(active);
  const pathOf = (id: string) => join(layout.vms, id, "vm", "active_policy.toml");
  return { store, active, pathOf, textOf: (id: string) => readFileSync(pathOf(id), "utf8") };
}

test("each running VM's folder says what is in force when it starts and after each change", async () => {
  const { store, active, textOf, pathOf } = await showing(temp(), ["vm_a", "vm_b"]);
  await Promise.all([active.write("vm_a"), active.write("vm_b")]);
  expect(textOf("vm_a")).toContain(`digest ${store.snapshot().digest}`);
  expect(textOf("vm_a")).toContain("running_max = 8 # builtin");
  expect(statSync(pathOf("vm_a")).mode & 0o777).toBe(0o600);
  await store.edit(EDIT);
  for (const id of ["vm_a", "vm_b"]) {
    expect(textOf(id)).toContain(`digest ${store.snapshot().digest}`);
    expect(textOf(id)).toContain("running_max = 5 # user");
  }
  expect(readdirSync(join(pathOf("vm_a"), ".."))).toEqual(["active_policy.toml"]);
});

test("many asks at once end with the newest", async () => {
  const { store, active, textOf } = await showing(temp(), ["vm_a"]);
  const writes = [active.write("vm_a"), active.write("vm_a")];
  for (let value = 1; value < 6; value++) {
    writes.push(active.write("vm_a"));
    await store.edit([{ kind: "set", key: "limits.running_max", value }]);
  }
  await Promise.all(writes);
  expect(textOf("vm_a")).toContain(`digest ${store.snapshot().digest}`);
});

test("a VM that goes meanwhile, or whose folder is not ours to write, stops no change", async () => {
  const rig = temp();
  const { store, pathOf } = await showing(rig, ["vm_gone", "vm_link"]);
  rmSync(join(rig.layout.vms, "vm_gone"), { recursive: true });
  const elsewhere = join(rig.home, "elsewhere");
  mkdirSync(elsewhere);
  symlinkSync(elsewhere, join(pathOf("vm_link"), ".."));
  await store.edit(EDIT);
  expect(store.settings()["limits.running_max"]).toBe(5);
  expect(readdirSync(elsewhere)).toEqual([]);
  expect(rig.log.filter(({ level }) => level === "error")).toMatchObject([{ vm_id: "vm_link" }]);
});

test("a VM that comes to run gets its file, and one that is gone is forgotten", async () => {
  const { active, textOf, pathOf } = await showing(temp(), ["vm_a"]);
  const told: string[] = [];
  const watch = showingPolicy(
    {
      changed: () => void told.push("changed"),
      created: () => void told.push("created"),
      failed: () => void told.push("failed"),
      gone: () => void told.push("gone"),
    },
    active,
  );
  const vm = (state: string) => ({ id: "vm_a", record: { state } }) as never;
  watch.changed(vm("starting"));
  watch.changed(vm("running"));
  await active.write("vm_a");
  expect(textOf("vm_a")).toContain("[posture]");
  writeFileSync(pathOf("vm_a"), "of the same snapshot: not written again");
  await active.write("vm_a");
  expect(textOf("vm_a")).toContain("not written again");
  watch.created(vm("running"));
  watch.failed(vm("running"), "", "");
  watch.gone(vm("deleting"), "running");
  await active.write("vm_a");
  expect(textOf("vm_a")).toContain("[posture]");
  expect(told).toEqual(["changed", "changed", "created", "failed", "gone"]);
});

test("a rule that names a secret shows its reference", async () => {
  const secret = 'canary-"71f2\\of the rule';
  const rule = `[profiles.rules.mine]\naction = "block"\nmatch = ${JSON.stringify(`process.command == ${JSON.stringify(secret)}`)}\n`;
  const rig = temp({ "settings.toml": rule });
  const redactor = new SecretRedactor();
  const { active, textOf } = await showing(rig, ["vm_a", "vm_b"], redactor);
  await active.write("vm_a");
  expect(textOf("vm_a")).toContain("canary-");
  const ref = `credential:blake3:${"ab".repeat(32)}`;
  redactor.add(ref, secret);
  await active.write("vm_b");
  expect(textOf("vm_b")).not.toContain("canary-");
  expect(textOf("vm_b")).toMatch(
    /^match = .process\.command == .{1,3}\[credential:blake3:(ab){32}\].{1,3}$/m,
  );
});

test("who asks for a file at the very end of a write of it has it written", async () => {
  const rig = temp();
  const { layout, log } = rig;
  const store = await rig.open();
  const folder = join(layout.vms, "vm_a");
  mkdirSync(layout.vms, { recursive: true, mode: 0o700 });
  // In the place of its folder: the first write fails, and says so.
  mkdirSync(folder, { mode: 0o700 });
  writeFileSync(join(folder, "vm"), "");
  const again = defer<void>();
  const active: ActivePolicy = new ActivePolicy({
    ...{ layout, uid, redactor: new SecretRedactor(), running: () => ["vm_a"] },
    snapshot: () => store.snapshot(),
    log: (level, message) => {
      log.push({ level, message });
      rmSync(join(folder, "vm"));
      // After the last look of the write under way, before anybody else has heard of its end.
      queueMicrotask(() => active.write("vm_a").then(again.resolve, again.reject));
    },
  });
  await active.write("vm_a");
  await again.promise;
  expect(readFileSync(join(folder, "vm", "active_policy.toml"), "utf8")).toContain("[posture]");
});
