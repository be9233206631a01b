import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { findQemu } from "./find-qemu.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-qemu-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function install(script: string, name = "bin"): string {
  mkdirSync(join(folder, name));
  writeFileSync(join(folder, name, "qemu-system-x86_64"), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return join(folder, name);
}

function find(searchPath: string) {
  return findQemu({ searchPath, spawnSync });
}

test("the first one on the path is found, with the packager's part of its version", () => {
  const first = install("echo 'QEMU emulator version 7.2.22 (Debian 1:7.2)'; echo Copyright");
  const second = install("echo 'QEMU emulator version 9.0.0'", "other");
  expect(find(`/nowhere:${first}:${second}`)).toEqual({
    binary: join(first, "qemu-system-x86_64"),
    version: "7.2.22 (Debian 1:7.2)",
  });
});

test("a link is followed, so that a launcher can be given the file itself", () => {
  const real = install("echo 'QEMU emulator version 10.0.1'");
  mkdirSync(join(folder, "links"));
  symlinkSync(join(real, "qemu-system-x86_64"), join(folder, "links", "qemu-system-x86_64"));
  expect(find(join(folder, "links"))?.binary).toBe(join(real, "qemu-system-x86_64"));
});

test.each(["", ".", "relative/bin", "/nowhere"])("the search path %j has none", (searchPath) => {
  expect(find(searchPath)).toBeNull();
});

test.each(["6.9.9", "7.1.0", "0.1"])("version %s is too old", (version) => {
  const path = install(`echo 'QEMU emulator version ${version}'`);
  expect(() => find(path)).toThrow(`Cannot use QEMU ${version}: 7.2 or newer is needed`);
});

test.each(["exit 1", "echo hello", "echo 'QEMU emulator version x.y'", "echo 'version 8.0'; exit 3"])(
  "one that does %j does not say its version",
  (script) => {
    expect(() => find(install(script))).toThrow("Cannot use QEMU: it does not say its version");
  },
);
