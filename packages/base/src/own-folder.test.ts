import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { checkOwnFolder, ensureOwnFolder, openOwnRoot } from "./own-folder.ts";

const uid = process.getuid?.() ?? -1;
const stranger = 4_242;
let root = "";
beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), "capsem-own-")));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const modeOf = (path: string) => statSync(path).mode & 0o7777;

test("a folder that is missing is made for us alone, and its real path is the answer", () => {
  symlinkSync(root, join(root, "link"));
  expect(openOwnRoot(join(root, "link", "a", "home"), uid)).toBe(join(root, "a", "home"));
  expect(modeOf(join(root, "a", "home"))).toBe(0o700);
  ensureOwnFolder(join(root, "a", "home", "run"), uid);
  ensureOwnFolder(join(root, "a", "home", "run"), uid);
  expect(modeOf(join(root, "a", "home", "run"))).toBe(0o700);
});

test("a folder that others may read stays as it is", () => {
  chmodSync(root, 0o755);
  checkOwnFolder(root, uid);
  expect(modeOf(root)).toBe(0o755);
});

test.each([0o777, 0o1777, 0o775, 0o722])("a folder of ours with mode %o is closed to others", (mode) => {
  writeFileSync(join(root, "ours"), "");
  chmodSync(root, mode);
  checkOwnFolder(root, uid);
  expect(modeOf(root)).toBe(0o700);
});

test("a folder of another user is refused, with path, owner and what to do", () => {
  expect(() => checkOwnFolder(root, stranger)).toThrow(
    `Cannot use "${root}": it belongs to user ${uid}, and we are user ${stranger}; remove it, or choose another home`,
  );
});

test.runIf(uid === 0)("what another user left in an open folder of ours is refused, each time", async () => {
  const { chownSync } = await import("node:fs");
  writeFileSync(join(root, "settings.json"), "{}");
  chownSync(join(root, "settings.json"), stranger, stranger);
  chmodSync(root, 0o777);
  for (let round = 0; round < 2; round++) {
    expect(() => checkOwnFolder(root, uid)).toThrow("settings.json");
    expect(modeOf(root)).toBe(0o777);
  }
});

test("a link or a file in a folder's place is refused and left alone", () => {
  mkdirSync(join(root, "elsewhere"));
  symlinkSync(join(root, "elsewhere"), join(root, "run"));
  writeFileSync(join(root, "logs"), "");
  expect(() => ensureOwnFolder(join(root, "run"), uid)).toThrow("it is a link");
  expect(() => ensureOwnFolder(join(root, "logs"), uid)).toThrow("it is no folder");
  expect(lstatSync(join(root, "run")).isSymbolicLink()).toBe(true);
});

test("a folder above that everybody may write is refused unless it is sticky", () => {
  mkdirSync(join(root, "open", "home"), { recursive: true });
  chmodSync(join(root, "open"), 0o777);
  expect(() => openOwnRoot(join(root, "open", "home"), uid)).toThrow("everybody may write it");
  chmodSync(join(root, "open"), 0o1777);
  expect(openOwnRoot(join(root, "open", "home"), uid)).toBe(join(root, "open", "home"));
});
