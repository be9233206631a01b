import { readFileSync } from "node:fs";

/** A run for correctness alone. */
export const isShort = process.env.CAPSEM_BENCH_SHORT === "1";

/** Samples of a figure: the second number where a run is short. */
export const count = (full: number, quick: number): number => (isShort ? quick : full);

/** Proportional memory of a process, MiB. */
export function pssMib(pid: number): number {
  const kib = /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1];
  return Number(kib) / 1024;
}
