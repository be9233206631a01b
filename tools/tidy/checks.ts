import { FREE_PACKAGES, IMPORTERS, LAYERS } from "./layers.ts";
import { importsOf, type Source } from "./sources.ts";

export const FILE_LINES_MAX = 500;

function roomOf(path: string): string {
  return path.split("/").slice(0, 2).join("/");
}

/** Imports between packages point down the table, and inside a room never leave it by a path. */
export function checkLayers(sources: readonly Source[]): string[] {
  const faults: string[] = [];
  for (const source of sources) {
    const room = roomOf(source.path);
    const allowed = LAYERS[room];
    if (allowed === undefined || source.test || !source.path.endsWith(".ts")) continue;
    for (const name of importsOf(source)) {
      if (name.startsWith("@capsem/")) {
        const target = name.split("/")[1] ?? "";
        if (!allowed.includes(target)) faults.push(`${source.path}: ${room} may not import ${name}`);
      } else if (name.startsWith("..")) {
        const depth = source.path.split("/").length - 3;
        const ups = name.split("/").filter((part) => part === "..").length;
        if (ups > depth) faults.push(`${source.path}: import ${name} leaves its room`);
      }
    }
  }
  return faults;
}

/** Each third-party package has one importing file, named in the table. */
export function checkImporters(sources: readonly Source[]): string[] {
  const faults: string[] = [];
  for (const source of sources) {
    if (source.test || !source.path.endsWith(".ts")) continue;
    for (const name of importsOf(source)) {
      if (name.startsWith(".") || name.startsWith("node:") || name.startsWith("@capsem/")) continue;
      const parts = name.split("/");
      const bare = name.startsWith("@") ? parts.slice(0, 2).join("/") : (parts[0] ?? "");
      if (FREE_PACKAGES.includes(name) || FREE_PACKAGES.includes(bare)) continue;
      if (!(IMPORTERS[bare] ?? []).includes(source.path))
        faults.push(`${source.path}: may not import ${name}; its importers are in tools/tidy/layers.ts`);
    }
  }
  return faults;
}

export function checkSizes(sources: readonly Source[]): string[] {
  return sources
    .filter(({ lines }) => lines > FILE_LINES_MAX)
    .map(({ path, lines }) => `${path}: ${lines} lines, limit ${FILE_LINES_MAX}`);
}

interface Forbidden {
  readonly pattern: RegExp;
  readonly what: string;
  readonly tests: boolean;
}

const word = (...parts: string[]) => parts.join("");
const FORBIDDEN: readonly Forbidden[] = [
  {
    pattern: new RegExp(`\\b(${word("TO", "DO")}|${word("FIX", "ME")}|${word("XX", "X")})\\b`),
    what: "unfinished work",
    tests: true,
  },
  {
    pattern: new RegExp(word("@ts-", "(ignore|nocheck|expect-error)")),
    what: "a silenced compiler",
    tests: true,
  },
  { pattern: new RegExp(word("\\bas an", "y\\b|: an", "y\\b|<an", "y>")), what: "any", tests: true },
  {
    pattern: /\b(class|interface|type) \w*(Manager|Util|Impl)\b/,
    what: "a name that says nothing",
    tests: true,
  },
  { pattern: /\b(it|test|describe)\.only\b/, what: "a lone test", tests: true },
  { pattern: /catch\s*(\([^)]*\))?\s*\{\s*\}/, what: "an empty catch", tests: true },
  {
    pattern: new RegExp(`["'\`(]/(${word("wo", "rk")}|${word("fa", "rm")})/`),
    what: "a path of one machine",
    tests: true,
  },
];

export function checkPatterns(sources: readonly Source[]): string[] {
  const faults: string[] = [];
  for (const source of sources) {
    source.text.split("\n").forEach((line, index) => {
      for (const { pattern, what } of FORBIDDEN) {
        if (pattern.test(line))
          faults.push(`${source.path}:${index + 1}: ${what}: ${line.trim().slice(0, 80)}`);
      }
    });
  }
  return faults;
}
