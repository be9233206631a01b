// Everything the project proves, cheap to dear: types, lint, tidy, host tests, VM tests, other people's clients.
// One closing line. With --proof the clients alone, and more of them.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { prepareProof } from "./proof.mjs";
import { closingLines, countStage } from "./test-report.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const withoutVms = process.argv.includes("--without-vms");
const soak = process.argv.includes("--soak");
const proofOnly = process.argv.includes("--proof");
const total = { passed: 0, failures: [], skips: [], times: [] };
const STAGE_TIMEOUT_MS = 50 * 60_000;

function run(command, args, env = {}) {
  return new Promise((done) => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: ["ignore", "inherit", "inherit"],
      timeout: STAGE_TIMEOUT_MS,
      env: { ...process.env, ...env },
    });
    child.on("error", () => done(127));
    child.on("close", (code) => done(code ?? 1));
  });
}

/** A stage that is one check: it passes or fails as a whole. */
async function check(name, command, args) {
  const started = Date.now();
  const code = await run(command, args);
  if (code === 0) total.passed += 1;
  else total.failures.push(`${name}: it ended with ${code}`);
  ended(name, started, code === 0);
  return code === 0;
}

/** A stage of many tests, counted from vitest's own report. */
async function tests(project, folder, env, prefix = []) {
  const started = Date.now();
  const path = join(folder, `${project}.json`);
  const [command, ...args] = [
    ...prefix,
    join(root, "node_modules", ".bin", "vitest"),
    ...["run", "--project", project, "--reporter=default", "--reporter=json", `--outputFile.json=${path}`],
  ];
  const code = await run(command, args, env);
  const stage = countStage({ name: project, report: readReport(path), code, root });
  total.passed += stage.passed;
  total.failures.push(...stage.failures);
  total.skips.push(...stage.skips);
  ended(`${project}, ${stage.passed} tests`, started, stage.failures.length === 0, project);
}

function readReport(path) {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    console.log(`Cannot read ${path}: ${cause.message}`);
    return null;
  }
}

function ended(words, started, isGood, name = words) {
  const ms = Date.now() - started;
  total.times.push({ name, ms });
  console.log(`${isGood ? "ok" : "FAILED"}  ${words} (${(ms / 1000).toFixed(1)} s)`);
}

async function main() {
  const bin = (name) => join(root, "node_modules", ".bin", name);
  if (!(await check("bootstrap", process.execPath, [join(root, "tools", "bootstrap.mjs")]))) return;
  if (!proofOnly) {
    await check("types", bin("tsc"), ["-p", "tsconfig.json"]);
    await check("lint", bin("biome"), ["check", "--error-on-warnings", "."]);
    await check("tidy", process.execPath, [join(root, "dist", "tidy.cjs")]);
  }
  const folder = mkdtempSync(join(tmpdir(), "capsem-test-"));
  try {
    const env = soak ? { CAPSEM_SOAK: "1" } : {};
    if (!proofOnly) {
      for (const project of ["unit", "process", "alone"]) await tests(project, folder, env);
      if (!withoutVms) await tests("vm", folder, env);
    }
    if (!withoutVms) {
      const started = Date.now();
      const proof = await prepareProof(proofOnly);
      total.times.push({ name: "programs", ms: Date.now() - started });
      await tests("proof", folder, { ...env, ...proof.env }, proof.prefix);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
for (const line of closingLines(total)) console.log(line);
process.exit(total.failures.length === 0 ? 0 : 1);
