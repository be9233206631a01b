import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { settingOfFile } from "./settings-file.ts";

const home = mkdtempSync(join(tmpdir(), "settings-"));
afterAll(() => rmSync(home, { recursive: true, force: true }));

const KEY = "confinement.allow_unconfined";
test.each([
  ["[confinement]\nallow_unconfined = true\n", true],
  ["confinement.allow_unconfined = true # why\n", true],
  ["[limits]\npool_size = 1\n[confinement]\nallow_unconfined = false\n", false],
  ["[other]\nallow_unconfined = true\n", undefined],
  ["allow_unconfined = true\n", undefined],
  ["[confinement\n", undefined],
  ["", undefined],
])("%j says %j", (text, value) => {
  writeFileSync(join(home, "settings.toml"), text);
  expect(settingOfFile(home, KEY)).toBe(value);
});

test("no file says nothing", () => {
  expect(settingOfFile(join(home, "none"), KEY)).toBeUndefined();
});
