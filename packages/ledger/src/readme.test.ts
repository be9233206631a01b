import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { transform } from "esbuild";
import { expect, onTestFinished, test } from "vitest";
import * as names from "./index.ts";

test("the README is short, and its example prints what it says", async () => {
  const readme = readFileSync(join(import.meta.dirname, "../README.md"), "utf8");
  expect(readme.split("\n").length).toBeLessThanOrEqual(41);
  const [, code = "", printed = ""] = /```ts\n([\s\S]*?)```\n+```text\n([\s\S]*?)```/.exec(readme) ?? [];
  const plain = (await transform(code, { loader: "ts" })).code;
  const body = plain.replaceAll(/^import .*$/gm, "").replaceAll("console.log(", "print(");
  const root = mkdtempSync(join(tmpdir(), "ledger-readme-"));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  const lines: string[] = [];
  const run = new Function("print", "root", ...Object.keys(names), body);
  run((...words: unknown[]) => lines.push(words.join(" ")), root, ...Object.values(names));
  expect(`${lines.join("\n")}\n`).toBe(printed);
});
