import { readFileSync } from "node:fs";

export interface ProcessFacts {
  /** R, S, D, T (stopped), … */
  readonly state: string;
  readonly startedAtMs: number;
}

const TICKS_PER_SECOND = 100;

/** Null: there is no such process, or it is a zombie. Only Linux tells. */
export function processFacts(pid: number, nowMs: number): ProcessFacts | null {
  const stat = read(`/proc/${pid}/stat`);
  const uptime = Number(read("/proc/uptime")?.split(" ")[0] ?? Number.NaN);
  if (stat === null) return null;
  // The name in parentheses may hold anything: fields are counted after its end.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[0] ?? "";
  if (state === "Z" || state === "X") return null;
  return { state, startedAtMs: nowMs - uptime * 1000 + (Number(fields[19]) * 1000) / TICKS_PER_SECOND };
}

function read(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}
