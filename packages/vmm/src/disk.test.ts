import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createDisk, diskAllocatedBytes } from "./disk.ts";

let folder: string;
let pristine: string;
let disk: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-disk-"));
  pristine = join(folder, "pristine.qcow2");
  disk = join(folder, "disk.qcow2");
  writeFileSync(pristine, "empty disk", { mode: 0o644 });
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("a disk is a copy for its owner alone", async () => {
  await createDisk(pristine, disk);
  expect(readFileSync(disk, "utf8")).toBe("empty disk");
  expect(statSync(disk).mode & 0o777).toBe(0o600);
  writeFileSync(disk, "changed");
  expect(readFileSync(pristine, "utf8")).toBe("empty disk");
});

test("a disk is never replaced", async () => {
  writeFileSync(disk, "a user's work");
  await expect(createDisk(pristine, disk)).rejects.toMatchObject({ kind: "disk_exists" });
  expect(readFileSync(disk, "utf8")).toBe("a user's work");
});

test("what a crash left of an earlier copy does not matter", async () => {
  writeFileSync(`${disk}.draft`, "hal");
  await createDisk(pristine, disk);
  expect(readFileSync(disk, "utf8")).toBe("empty disk");
  expect(readdirSync(folder).sort()).toEqual(["disk.qcow2", "pristine.qcow2"]);
});

test("a missing pristine disk leaves nothing", async () => {
  rmSync(pristine);
  await expect(createDisk(pristine, disk)).rejects.toMatchObject({ kind: "disk_missing" });
  expect(readdirSync(folder)).toEqual([]);
});

test("allocated bytes do not count holes", async () => {
  truncateSync(pristine, 1024 ** 3);
  expect(await diskAllocatedBytes(pristine)).toBeLessThan(1024 ** 2);
});
