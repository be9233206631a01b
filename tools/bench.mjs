// Makes the machine ready, then runs the benchmarks; CAPSEM_BENCH_SHORT=1 takes few samples, for correctness.
import { spawnSync } from "node:child_process";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const run = (...args) => {
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
};

run(join(root, "tools", "bootstrap.mjs"));
const { build } = await import("esbuild");
/** The bench, and what it starts beside the product's own programs: a service whose VM is a stand-in. */
const PROGRAMS = {
  bench: "bench/main.ts",
  "bench-tool-host": "bench/tool-host.ts",
  "bench-tool-owner": "apps/service/src/testing/fake-owner.ts",
};
for (const [name, entry] of Object.entries(PROGRAMS)) {
  await build({
    absWorkingDir: root,
    entryPoints: [entry],
    outfile: `dist/${name}.cjs`,
    bundle: true,
    platform: "node",
    target: "node20",
    format: "cjs",
    logLevel: "warning",
    // The sources find the project's root by their own folder; a bundle has none.
    define: { "import.meta.dirname": JSON.stringify(join(root, "tests", "support")) },
    external: ["bufferutil", "utf-8-validate"],
  });
}
run(join(root, "dist", "bench.cjs"), ...process.argv.slice(2));
