import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readSettings } from "../settings.ts";
import { readJsonFile, writeFileAtomic } from "./atomic-file.ts";
import { takeInstanceLock } from "./instance-lock.ts";
import { createHome, homeLayout } from "./layout.ts";
import { checkSchemaVersion } from "./schema-version.ts";

let home = "";
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "capsem-home-"));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

test("a file is replaced whole, private, and nothing else is left", async () => {
  const path = join(home, "file");
  await writeFileAtomic(path, "one");
  await writeFileAtomic(path, "two");
  expect(readFileSync(path, "utf8")).toBe("two");
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readdirSync(home)).toEqual(["file"]);
  mkdirSync(join(home, "folder"));
  await expect(writeFileAtomic(join(home, "folder"), "x")).rejects.toThrow();
  expect(readdirSync(home)).toEqual(["file", "folder"]);
});

test("JSON that is none is an error, a missing file is not", async () => {
  writeFileSync(join(home, "bad"), "{");
  await expect(readJsonFile(join(home, "bad"))).rejects.toMatchObject({ kind: "file_corrupt" });
  expect(await readJsonFile(join(home, "none"))).toBeNull();
});

test("an older home is migrated step by step after a copy of its state", async () => {
  const layout = homeLayout(home);
  await createHome(layout);
  writeFileSync(layout.schema, '{"version":1}');
  mkdirSync(join(layout.vms, "vm_a", "logs"), { recursive: true });
  writeFileSync(join(layout.vms, "vm_a", "vm.json"), "record");
  writeFileSync(join(layout.vms, "vm_a", "disk.qcow2"), "large");
  const steps: number[] = [];
  const step = (from: number) => async () => void steps.push(from);
  await checkSchemaVersion(layout, { 1: step(1), 2: step(2) }, 3);
  expect(steps).toEqual([1, 2]);
  expect(JSON.parse(readFileSync(layout.schema, "utf8"))).toEqual({ version: 3 });
  expect(readdirSync(join(layout.backups, "schema-1", "vms", "vm_a"))).toEqual(["vm.json"]);
  expect(readFileSync(join(layout.backups, "schema-1", "schema.json"), "utf8")).toBe('{"version":1}');
});

test.each([
  { what: "newer", text: '{"version":9}', kind: "schema_newer" },
  { what: "without a version", text: "{}", kind: "schema_unreadable" },
  { what: "older without a way up", text: '{"version":1}', kind: "schema_older" },
])("a home that is $what is refused", async ({ text, kind }) => {
  const layout = homeLayout(home);
  await createHome(layout);
  writeFileSync(layout.schema, text);
  await expect(checkSchemaVersion(layout, {}, 2)).rejects.toMatchObject({ kind });
  expect(readFileSync(layout.schema, "utf8")).toBe(text);
});

test("the instance lock is one a user and home, and free after its release", async () => {
  const lock = await takeInstanceLock(1, home);
  await expect(takeInstanceLock(1, home)).rejects.toMatchObject({ kind: "already_running" });
  (await takeInstanceLock(2, home)).release();
  (await takeInstanceLock(1, `${home}/other`)).release();
  lock.release();
  await expect.poll(() => takeInstanceLock(1, home).then((next) => next.release())).toBeUndefined();
});

test("settings have defaults, take the environment's pool size, and refuse the rest", async () => {
  const path = join(home, "settings.json");
  expect(await readSettings(path)).toMatchObject({ pool_size: 2, running_max: 8, retained_max: 32 });
  expect(await readSettings(path, "0")).toMatchObject({ pool_size: 0 });
  await expect(readSettings(path, "many")).rejects.toMatchObject({ kind: "settings_invalid" });
  await expect(readSettings(path, "-1")).rejects.toMatchObject({ kind: "settings_invalid" });
  writeFileSync(path, '{"running_max":0}');
  await expect(readSettings(path)).rejects.toMatchObject({ kind: "settings_invalid" });
});
