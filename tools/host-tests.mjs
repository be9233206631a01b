// Which host tests share a process with others, and which of them start nothing. What one file changes of its process,
// or measures of it, would be another file's surprise: such a file has a process to itself.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

const FOLDERS = ["packages", "apps", "guest-image", "tools", "tests", "bench"];
const SKIPPED = new Set(["node_modules", "dist"]);
const HOST_TEST = /(?<!\.(vm|proof))\.test\.ts$/;
const IMPORTS =
  /^\s*(?:import|export)\s(?!type\b)[^;]*?from\s+"([^"]+)"|\bimport\(\s*"([^"]+)"\)|^import\s+"([^"]+)"/gms;

/** What starts programs or threads, or holds descriptors. */
const STARTERS = ["node:child_process", "node:worker_threads", "node:cluster", "@capsem/native"];
/** What would be another file's surprise: its process changed, measured, or watched. */
const CHANGES =
  /process\.env(\.\w+|\[[^\]]+\])\s*=[^=]|process\.(chdir|umask|on|once|exitCode|setuid)\b|memoryUsage|setFlagsFromString|\bvi\.(mock|doMock|stub\w+|useFakeTimers)\b|globalThis(\.\w+|\[[^\]]+\])\s*=[^=]/;
/** What is tested there is what a process may do to itself. */
const OWN_PROCESS = /^packages\/(native|jail)\//;
/** A hook outside every function is the first file's alone, where its module is loaded once. */
const LOOSE_HOOK = /^(before|after)(Each|All)\(/m;

/**
 * All host tests, each in one of three lists of paths from `root`, by what it and all that it imports does: `unit` start
 * nothing, `process` do, and `alone` change or measure their own process.
 */
export function hostTests(root) {
  const files = new Map();
  const look = (path) => {
    if (!files.has(path)) files.set(path, lookAt(root, path));
    return files.get(path);
  };
  const lists = { unit: [], process: [], alone: [] };
  for (const test of testFiles(root)) lists[kindOf(test, look)].push(test);
  return lists;
}

function testFiles(root) {
  const found = [];
  const visit = (folder) => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      if (SKIPPED.has(entry.name)) continue;
      const path = `${folder}/${entry.name}`;
      if (entry.isDirectory()) visit(path);
      else if (HOST_TEST.test(entry.name)) found.push(path);
    }
  };
  for (const folder of FOLDERS) if (existsSync(join(root, folder))) visit(folder);
  return found.sort();
}

function kindOf(test, look) {
  const seen = new Set([test]);
  let kind = "unit";
  for (const path of seen) {
    const { isAlone, isStarter, imports } = look(path);
    if (isAlone) return "alone";
    if (isStarter) kind = "process";
    for (const each of imports) seen.add(each);
  }
  return kind;
}

function lookAt(root, path) {
  const text = readFileSync(join(root, path), "utf8");
  const names = [...text.matchAll(IMPORTS)].map(([, from, later, plain]) => from ?? later ?? plain);
  const isLoose = !HOST_TEST.test(path) && LOOSE_HOOK.test(text);
  return {
    isAlone: (HOST_TEST.test(path) && OWN_PROCESS.test(path)) || isLoose || CHANGES.test(text),
    isStarter: names.some((name) => STARTERS.includes(name)),
    imports: names.map((name) => ours(root, path, name)).filter((each) => each !== null),
  };
}

/** The file of our own that an import names; null of what is another's. */
function ours(root, path, name) {
  if (name.startsWith(".")) return known(root, normalize(join(dirname(path), name)));
  const [, folder, entry] = /^@capsem\/([a-z-]+)((?:\/[a-z-]+)*)$/.exec(name) ?? [];
  if (folder === undefined) return null;
  const manifest = join(root, "packages", folder, "package.json");
  if (!existsSync(manifest)) return null;
  const target = JSON.parse(readFileSync(manifest, "utf8")).exports?.[`.${entry}`];
  return target === undefined ? null : known(root, normalize(join("packages", folder, target)));
}

function known(root, path) {
  return /\.m?[jt]s$/.test(path) && existsSync(join(root, path)) ? path : null;
}
