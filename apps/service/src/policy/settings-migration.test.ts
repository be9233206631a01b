import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { refusal, useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();

test("a settings.json becomes settings.toml, once, and is kept beside", async () => {
  const rig = temp({
    "settings.json":
      '{"pool_size":0,"idle_secs":0.5,"lifetime_secs":9,"running_max":3,"retained_max":4,"memory_gib_max":2,"default_cpus":2,"default_memory_gib":0.75,"allow_unconfined":true}',
  });
  const store = await rig.openWhole();
  expect(store.settings()).toMatchObject({
    "limits.pool_size": 0,
    "limits.idle_secs": 0.5,
    "limits.lifetime_secs": 9,
    "limits.running_max": 3,
    "limits.retained_max": 4,
    "limits.memory_gib_max": 2,
    "limits.default_cpus": 2,
    "limits.default_memory_gib": 0.75,
    "confinement.allow_unconfined": true,
  });
  expect(existsSync(join(rig.home, "settings.json"))).toBe(false);
  expect(JSON.parse(rig.read("backups/settings.json"))).toMatchObject({ pool_size: 0 });
  expect(statSync(rig.layout.settings).mode & 0o777).toBe(0o600);
  const text = rig.read("settings.toml");
  expect((await rig.openWhole()).settings()).toMatchObject({ "limits.running_max": 3 });
  expect(rig.read("settings.toml")).toBe(text);
});

test("nothing is made where there is nothing", async () => {
  const rig = temp();
  await rig.openWhole();
  expect(readdirSync(rig.home)).toEqual([]);
});

test.each([
  ["an unknown key", '{"pool_sise":1}', "pool_sise"],
  ["a wrong value", '{"running_max":0}', '"limits.running_max" takes'],
  ["a key of objects", '{"constructor":1}', "constructor"],
  ["a list", "[]", "no object"],
  ["no JSON", "{", "not JSON"],
])("%s refuses the start and leaves the file", async (_what, text, says) => {
  const rig = temp({ "settings.json": text });
  const refused = await refusal(rig.openWhole());
  expect(refused.kind).toBe("settings_invalid");
  expect(refused.message).toContain(says);
  expect(readdirSync(rig.home)).toEqual(["settings.json"]);
});

test("an old file beside a new one is refused: nobody would read what it says", async () => {
  const rig = temp({ "settings.json": '{"running_max":3}', "settings.toml": "" });
  expect((await refusal(rig.openWhole())).message).toContain("settings are in settings.toml now");
});

test("a migration that was interrupted at its last step is finished", async () => {
  const rig = temp({ "settings.json": '{ "running_max": 3 }' });
  await rig.openWhole();
  rig.write("settings.json", '{"running_max":3}');
  expect((await rig.openWhole()).settings()["limits.running_max"]).toBe(3);
  expect(existsSync(join(rig.home, "settings.json"))).toBe(false);
});

test("a copy that cannot be made leaves everything as it was", async () => {
  const rig = temp({ "settings.json": '{"running_max":3}' });
  rig.write("backups", "in the way");
  await expect(rig.openWhole()).rejects.toThrow();
  expect(readdirSync(rig.home).sort()).toEqual(["backups", "settings.json"]);
  expect(readFileSync(join(rig.home, "settings.json"), "utf8")).toBe('{"running_max":3}');
});
