// Everything the project proves, cheap to dear: types, lint, tidy, host tests, VM tests, other people's clients.
// One closing line. With --proof the clients alone, and more of them.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { prepareProof } from "./proof.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const withoutVms = process.argv.includes("--without-vms");
const soak = process.argv.includes("--soak");
const proofOnly = process.argv.includes("--proof");
const total = { passed: 0, failed: 0, skipped: 0 };
const skips = [];
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
  total[code === 0 ? "passed" : "failed"] += 1;
  console.log(`${code === 0 ? "ok" : "FAILED"}  ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  return code === 0;
}

function skipReason(assertion) {
  return assertion.meta?.skipReason ?? "see the test's output";
}

/** A stage of many tests, counted from vitest's own report. */
async function tests(project, folder, env, prefix = []) {
  const report = join(folder, `${project}.json`);
  const [command, ...args] = [
    ...prefix,
    join(root, "node_modules", ".bin", "vitest"),
    ...["run", "--project", project, "--reporter=default", "--reporter=json", `--outputFile.json=${report}`],
  ];
  const code = await run(command, args, env);
  let counted = 0;
  try {
    const { testResults } = JSON.parse(readFileSync(report, "utf8"));
    for (const file of testResults) {
      for (const assertion of file.assertionResults) {
        counted += 1;
        if (assertion.status === "passed") total.passed += 1;
        else if (assertion.status === "failed") total.failed += 1;
        else {
          total.skipped += 1;
          skips.push(`${assertion.fullName}: ${skipReason(assertion)}`);
        }
      }
      if (file.status === "failed" && file.assertionResults.length === 0) total.failed += 1;
    }
  } catch (cause) {
    console.log(`FAILED  ${project}: no report (${cause.message})`);
    total.failed += 1;
  }
  if (code !== 0 && total.failed === 0) total.failed += 1;
  if (counted === 0) total.failed += 1;
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
      await tests("host", folder, env);
      if (!withoutVms) await tests("vm", folder, env);
    }
    if (!withoutVms) {
      const proof = await prepareProof(proofOnly);
      await tests("proof", folder, { ...env, ...proof.env }, proof.prefix);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
for (const skip of skips) console.log(`skipped  ${skip}`);
console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exit(total.failed === 0 ? 0 : 1);
