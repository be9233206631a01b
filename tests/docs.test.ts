import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { TOOLS } from "@capsem/api";
import { build } from "esbuild";
import { expect, test } from "vitest";

const root = resolve(import.meta.dirname, "..");

/** A package's README example must run as it stands. Those that need a service are run by the package's own tests. */
test.each(["base", "api", "policy"])("the example in the README of %s runs", async (name) => {
  const text = readFileSync(join(root, "packages", name, "README.md"), "utf8");
  const example = /```ts\n([\s\S]*?)```/.exec(text)?.[1];
  expect(example).toBeDefined();
  const folder = mkdtempSync(join(root, "dist", "readme-"));
  try {
    writeFileSync(join(folder, "example.ts"), example ?? "");
    await build({
      entryPoints: [join(folder, "example.ts")],
      outfile: join(folder, "example.mjs"),
      bundle: true,
      platform: "node",
      format: "esm",
      logLevel: "error",
    });
    await import(join(folder, "example.mjs"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("every link between the project's pages leads somewhere", () => {
  const pages = [
    "README.md",
    "ARCHITECTURE.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    ...readdirSync(join(root, "docs"))
      .filter((name) => name.endsWith(".md"))
      .map((name) => `docs/${name}`),
  ];
  for (const page of pages) {
    const text = readFileSync(join(root, page), "utf8");
    for (const [, target = ""] of text.matchAll(/\]\(([^)#]+)\)/g)) {
      expect([page, target, existsSync(join(root, page, "..", target))]).toEqual([page, target, true]);
    }
  }
});

test("docs/agents.md names every tool of the table, and no other", () => {
  const text = readFileSync(join(root, "docs", "agents.md"), "utf8");
  const named = new Set([...text.matchAll(/`(capsem_[a-z_]+)`/g)].map((match) => match[1]));
  expect([...named].sort()).toEqual(Object.keys(TOOLS).sort());
});
