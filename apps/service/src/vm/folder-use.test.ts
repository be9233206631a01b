import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { folderUse } from "./folder-use.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-use-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("blocks are counted and not lengths, below all folders and through no link", async () => {
  mkdirSync(join(folder, "a", "b"), { recursive: true });
  writeFileSync(join(folder, "a", "b", "data"), Buffer.alloc(1024 ** 2, 1));
  writeFileSync(join(folder, "sparse"), "");
  truncateSync(join(folder, "sparse"), 1024 ** 4);
  symlinkSync("/", join(folder, "link"));
  const { allocatedBytes, entries } = await folderUse(folder, 100);
  expect(entries).toBe(5);
  expect(allocatedBytes).toBeGreaterThanOrEqual(1024 ** 2);
  expect(allocatedBytes).toBeLessThan(2 * 1024 ** 2);
});

test("counting ends where there are too many, and a folder that is not there is empty", async () => {
  for (let file = 0; file < 20; file++) writeFileSync(join(folder, String(file)), "");
  expect((await folderUse(folder, 5)).entries).toBe(6);
  for (const name of ["none", "0"]) {
    expect(await folderUse(join(folder, name), 5)).toEqual({ allocatedBytes: 0, entries: 0 });
  }
});

test.runIf(process.getuid?.() !== 0)("a folder that is closed to us counts as too many", async () => {
  mkdirSync(join(folder, "closed"), { mode: 0 });
  expect((await folderUse(folder, 5)).entries).toBe(6);
});
