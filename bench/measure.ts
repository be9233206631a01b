import { readFileSync } from "node:fs";

const short = process.env.CAPSEM_BENCH_SHORT === "1";

/** Samples of a figure: the second number where a run is for correctness alone. */
export const count = (full: number, quick: number): number => (short ? quick : full);

/** Proportional memory of a process, MiB. */
export function pssMib(pid: number): number {
  const kib = /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1];
  return Number(kib) / 1024;
}
