import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { hostTests } from "./host-tests.mjs";

/** A small project of `files`; two packages are in it already. */
function projectOf(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), "capsem-host-tests-"));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  const exports = (entries: object) => JSON.stringify({ exports: entries });
  const all = {
    "packages/native/package.json": exports({ ".": "./src/index.ts" }),
    "packages/native/src/index.ts": "export const native = 1;",
    "packages/plain/package.json": exports({ ".": "./src/index.ts", "./more": "./src/more.ts" }),
    "packages/plain/src/index.ts": "export const plain = 1;",
    "packages/plain/src/more.ts": 'import { spawn } from "node:child_process";\nexport const more = spawn;',
    ...files,
  };
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

function kindOf(text: string, more: Readonly<Record<string, string>> = {}): string {
  const lists = hostTests(projectOf({ "apps/a/src/a.test.ts": text, ...more }));
  const [found] = Object.entries(lists).filter(([, paths]) => paths.includes("apps/a/src/a.test.ts"));
  return found?.[0] ?? "none";
}

test.each([
  ["nothing", "expect(1).toBe(1);"],
  ["a package that starts none", 'import { plain } from "@capsem/plain";'],
  ["the types of what starts some", 'import type { spawn } from "node:child_process";\n'],
  ["its environment, read", "expect(process.env.PATH === undefined).toBe(false);"],
  ["hooks of its own", "afterEach(() => undefined);"],
])("a test that needs %s is a unit test", (_what, text) => {
  expect(kindOf(text)).toBe("unit");
});

test.each([
  ["processes", 'import { spawn } from "node:child_process";'],
  ["threads", 'import {\n  isMainThread,\n  Worker,\n} from "node:worker_threads";'],
  ["what holds descriptors", 'import { native } from "@capsem/native";'],
  ["later what starts processes", 'const { more } = await import("@capsem/plain/more");'],
])("a test that starts %s is none", (_what, text) => {
  expect(kindOf(text)).toBe("process");
});

test.each([
  ["changes its environment", 'process.env.HOME = "/";'],
  ["changes its folder", 'process.chdir("/");'],
  ["hears signals", 'process.on("SIGTERM", end);'],
  ["measures itself", "const { rss } = process.memoryUsage();"],
  ["replaces modules", 'vi.mock("./b.ts");'],
  ["replaces the clock", "vi.useFakeTimers();"],
])("a test that %s has a process to itself, whatever it starts", (_what, text) => {
  expect(kindOf(text)).toBe("alone");
  expect(kindOf(`import { spawn } from "node:child_process";\n${text}`)).toBe("alone");
});

test("what a test imports counts, however far away", () => {
  const far = (text: string) => ({
    "apps/a/src/b.ts": 'import "./parts/c.ts";',
    "apps/a/src/parts/c.ts": 'export { d } from "../d.ts";',
    "apps/a/src/d.ts": text,
  });
  const text = 'import { b } from "./b.ts";';
  expect(kindOf(text, far("export const d = 1;"))).toBe("unit");
  expect(kindOf(text, far('import { more } from "@capsem/plain/more";'))).toBe("process");
  expect(kindOf(text, far("afterAll(() => undefined);"))).toBe("alone");
  // Called by each test file for itself.
  expect(kindOf(text, far("export function use() {\n  afterAll(() => undefined);\n}"))).toBe("unit");
});

test("tests of VMs and of others' programs are of no kind, and imports in a circle come to an end", () => {
  const root = projectOf({
    "apps/a/src/a.vm.test.ts": "",
    "tests/proof/a.proof.test.ts": "",
    "apps/a/src/vm.test.ts": 'import "./circle.ts";',
    "apps/a/src/circle.ts": 'import "./again.ts";',
    "apps/a/src/again.ts": 'import "./circle.ts";',
    "apps/a/node_modules/x/x.test.ts": "",
    "packages/native/src/seal.test.ts": "",
  });
  expect(hostTests(root)).toEqual({
    unit: ["apps/a/src/vm.test.ts"],
    process: [],
    alone: ["packages/native/src/seal.test.ts"],
  });
});

test("of this project each host test is of one kind, and most start nothing", () => {
  const { unit, process: withProcesses, alone } = hostTests(resolve(import.meta.dirname, ".."));
  const all = [...unit, ...withProcesses, ...alone];
  expect(new Set(all).size).toBe(all.length);
  expect(unit.length).toBeGreaterThan(all.length / 2);
  expect(unit.filter((path) => /process\.test\.ts$|^packages\/native\/|^guest-image\//.test(path))).toEqual(
    [],
  );
});
