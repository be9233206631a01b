import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { lockFile } from "@capsem/base/lock-file";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readJsonFile, writeFileAtomic } from "./atomic-file.ts";
import { takeInstanceLock } from "./instance-lock.ts";
import { createHome, homeLayout } from "./layout.ts";
import { checkSchemaVersion } from "./schema-version.ts";

const uid = process.getuid?.() ?? -1;
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
  await createHome(layout, uid);
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
  await createHome(layout, uid);
  writeFileSync(layout.schema, text);
  await expect(checkSchemaVersion(layout, {}, 2)).rejects.toMatchObject({ kind });
  expect(readFileSync(layout.schema, "utf8")).toBe(text);
});

test("the instance lock is one a home, free after its release, and nobody else may open it", () => {
  const other = join(home, "other");
  mkdirSync(other);
  const lock = takeInstanceLock(home, lockFile);
  expect(() => takeInstanceLock(home, lockFile)).toThrow(
    expect.objectContaining({ kind: "already_running" }),
  );
  takeInstanceLock(other, lockFile).release();
  expect(statSync(join(home, "service.lock")).mode & 0o777).toBe(0o600);
  lock.release();
  takeInstanceLock(home, lockFile).release();
});

test("a lock whose file was removed meanwhile is not taken for the lock", () => {
  const path = join(home, "service.lock");
  let rounds = 0;
  const lock = takeInstanceLock(home, (fd) => {
    rounds += 1;
    if (rounds === 1) rmSync(path);
    return lockFile(fd);
  });
  expect(rounds).toBe(2);
  expect(() => takeInstanceLock(home, lockFile)).toThrow("another one runs");
  lock.release();
  const removes = () => {
    rmSync(path);
    return true;
  };
  expect(() => takeInstanceLock(home, removes)).toThrow("again and again");
});

test("a lock file that others could open is closed to them, and a link or pipe in its place is refused", () => {
  const path = join(home, "service.lock");
  writeFileSync(path, "", { mode: 0o666 });
  takeInstanceLock(home, lockFile).release();
  expect(statSync(path).mode & 0o777).toBe(0o600);
  rmSync(path);
  symlinkSync(join(home, "victim"), path);
  expect(() => takeInstanceLock(home, lockFile)).toThrow("ELOOP");
  expect(existsSync(join(home, "victim"))).toBe(false);
  rmSync(path);
  execFileSync("mkfifo", [path]);
  expect(() => takeInstanceLock(home, lockFile)).toThrow("it is no file");
});

test.each(["vm.json", "processes.json", "panic.json"])(
  "a pipe, a link, a folder or a huge file called %s holds nobody up and is refused",
  async (name) => {
    const path = join(home, name);
    execFileSync("mkfifo", [path]);
    await expect(readJsonFile(path)).rejects.toMatchObject({ kind: "file_refused" });
    rmSync(path);
    writeFileSync(join(home, "elsewhere"), "{}");
    symlinkSync(join(home, "elsewhere"), path);
    await expect(readJsonFile(path)).rejects.toMatchObject({ kind: "file_refused" });
    rmSync(path);
    mkdirSync(path);
    await expect(readJsonFile(path)).rejects.toMatchObject({ kind: "file_refused" });
    rmSync(path, { recursive: true });
    writeFileSync(path, "");
    truncateSync(path, 1024 ** 4);
    await expect(readJsonFile(path)).rejects.toThrow("more than 4194304 bytes");
  },
);

test("a link that waits at a writer's temporary name leads it nowhere", async () => {
  const victim = join(home, "victim");
  writeFileSync(victim, "keep");
  symlinkSync(victim, join(home, "file.tmp"));
  await writeFileAtomic(join(home, "file"), "text");
  expect(readFileSync(victim, "utf8")).toBe("keep");
  expect(readFileSync(join(home, "file"), "utf8")).toBe("text");
});
