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
const { buildBench } = await import("./bench-programs.mjs");
await buildBench(join(root, "dist"));
run(join(root, "dist", "bench.cjs"), ...process.argv.slice(2));
