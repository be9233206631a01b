import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build, transform } from "esbuild";
import { expect, test } from "vitest";
import { decide, renderDecision } from "./index.ts";
import { policyPage } from "./policy-doc.ts";
import { layerOf } from "./testing/policies.ts";

const PAGE = new URL("../../../docs/policy-fields.md", import.meta.url);

test("docs/policy-fields.md is what the tables say", async () => {
  const refresh = "stale: run `npx vitest run packages/policy -u` and review the difference";
  await expect(policyPage(), refresh).toMatchFileSnapshot(PAGE.pathname);
});

test("the rule of that page compiles", () => {
  const [, toml = ""] = /```toml\n([\s\S]*?)```/.exec(policyPage()) ?? [];
  expect(layerOf("user", toml).rules).toHaveLength(1);
});

test("the README is short, and its example prints what it says", async () => {
  const readme = readFileSync(join(import.meta.dirname, "../README.md"), "utf8");
  expect(readme.split("\n").length).toBeLessThanOrEqual(41);
  const [, code = "", printed = ""] = /```ts\n([\s\S]*?)```\n+```text\n([\s\S]*?)```/.exec(readme) ?? [];
  const plain = (await transform(code, { loader: "ts" })).code;
  const body = plain.replaceAll(/^import .*$/gm, "").replaceAll("console.log(", "print(");
  const names = await import("./index.ts");
  const lines: string[] = [];
  const run = new Function("print", "createHash", ...Object.keys(names), body);
  run((line: string) => lines.push(line), (await import("node:crypto")).createHash, ...Object.values(names));
  expect(`${lines.join("\n")}\n`).toBe(printed);
  expect([decide, renderDecision].every((name) => code.includes(name.name))).toBe(true);
});

test("the package is pure: it bundles for a browser, where nothing of Node exists", async () => {
  const result = await build({
    entryPoints: [join(import.meta.dirname, "index.ts")],
    bundle: true,
    platform: "browser",
    format: "esm",
    write: false,
    metafile: true,
    logLevel: "silent",
  });
  expect(result.errors).toEqual([]);
  const inputs = Object.keys(result.metafile.inputs);
  expect(inputs.filter((path) => path.includes("/testing/") || path.includes(".fuzz."))).toEqual([]);
  for (const path of inputs.filter((name) => name.startsWith("packages/policy/"))) {
    const text = readFileSync(path, "utf8");
    expect(text, path).not.toMatch(/\bnew Date\b|Date\.now|performance\.now|Math\.random|setTimeout|fetch\(/);
  }
  expect(inputs.filter((name) => name.startsWith("packages/policy/")).length).toBeGreaterThan(30);
});
