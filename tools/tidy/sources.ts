import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface Source {
  readonly path: string;
  readonly text: string;
  readonly lines: number;
  readonly test: boolean;
}

const SKIPPED = new Set(["node_modules", "dist", ".git", "coverage"]);
const CODE = /\.(ts|mjs|mts|c|h|cc)$/;

/** All code of the project, paths relative to the root, sorted. */
export function readSources(root: string): Source[] {
  const found: Source[] = [];
  const visit = (folder: string) => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      if (SKIPPED.has(entry.name)) continue;
      const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
      if (entry.isDirectory()) visit(path);
      else if (CODE.test(entry.name)) {
        const text = readFileSync(join(root, path), "utf8");
        found.push({ path, text, lines: text.split("\n").length - 1, test: isTest(path) });
      }
    }
  };
  visit("");
  return found.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function isTest(path: string): boolean {
  return (
    /\.(test|fuzz|bench)\.ts$/.test(path) ||
    /(^|\/)(testing|tests|bench)\//.test(path) ||
    /\/test-[^/]+\.ts$/.test(path)
  );
}

/** Module names that a file imports, type imports too. */
export function importsOf(source: Source): string[] {
  const names: string[] = [];
  for (const match of source.text.matchAll(/^\s*(?:import|export)\s[^;]*?from\s+"([^"]+)"/gms))
    names.push(match[1] ?? "");
  for (const match of source.text.matchAll(/\bimport\(\s*"([^"]+)"/g)) names.push(match[1] ?? "");
  for (const match of source.text.matchAll(/^import\s+"([^"]+)"/gm)) names.push(match[1] ?? "");
  return names;
}
