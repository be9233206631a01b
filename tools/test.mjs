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

/** Resolves to how it ended. `output` is told what it says, which goes to our own output otherwise. */
function run(command, args, env = {}, output = null) {
  return new Promise((done) => {
    const channel = output === null ? "inherit" : "pipe";
    const child = spawn(command, args, {
      cwd: root,
      stdio: ["ignore", channel, channel],
      timeout: STAGE_TIMEOUT_MS,
      env: { ...process.env, ...env },
    });
    for (const stream of [child.stdout, child.stderr]) stream?.on("data", output);
    child.on("error", () => done(127));
    child.on("close", (code) => done(code ?? 1));
  });
}

/** A stage that is one check: it passes or fails as a whole. Of one that is not alone, all it says comes at its end. */
async function check(name, [command, ...args], { isAlone = true } = {}) {
  const started = Date.now();
  const said = [];
  const code = await run(command, args, {}, isAlone ? null : (part) => said.push(part));
  if (said.length > 0) process.stdout.write(Buffer.concat(said));
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

/** What the last stage needs, with its time. */
async function prepared() {
  const started = Date.now();
  const proof = await prepareProof(proofOnly);
  total.times.push({ name: "programs", ms: Date.now() - started });
  return proof;
}

async function main() {
  const bin = (name) => join(root, "node_modules", ".bin", name);
  if (!(await check("bootstrap", [process.execPath, join(root, "tools", "bootstrap.mjs")]))) return;
  if (!proofOnly) {
    const checks = [
      ["types", [bin("tsc"), "-p", "tsconfig.json"]],
      ["lint", [bin("biome"), "check", "--error-on-warnings", "."]],
      ["tidy", [process.execPath, join(root, "dist", "tidy.cjs")]],
    ];
    await Promise.all(checks.map(([name, words]) => check(name, words, { isAlone: false })));
  }
  // They come over the network, and are long there when the last stage needs them.
  const programs = withoutVms ? null : prepared();
  const folder = mkdtempSync(join(tmpdir(), "capsem-test-"));
  try {
    const env = soak ? { CAPSEM_SOAK: "1" } : {};
    if (!proofOnly) {
      for (const project of ["unit", "process", "alone"]) await tests(project, folder, env);
      if (!withoutVms) await tests("vm", folder, env);
    }
    if (!withoutVms) {
      const proof = await programs;
      await tests("proof", folder, { ...env, ...proof.env }, proof.prefix);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
for (const line of closingLines(total)) console.log(line);
process.exit(total.failures.length === 0 ? 0 : 1);
