import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { LOG_LIMITS } from "../limits.ts";

/** Writes one abnormal end to logs/panics. Synchronous: the process ends right after it. */
export function writePanic(folder: string, thrown: unknown, now: Date, pid: number): string {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const stack = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  const [message = "", ...frames] = stack.split("\n");
  const name = `${now.toISOString().replaceAll(":", "-")}-service-${pid}.json`;
  const panic = {
    process: "service",
    pid,
    time: now.toISOString(),
    message,
    location: frames[0]?.trim() ?? null,
    frames: frames.slice(0, 16).map((frame) => frame.trim()),
  };
  const path = join(folder, name);
  writeFileSync(path, `${JSON.stringify(panic, null, 2)}\n`, { mode: 0o600 });
  for (const old of readdirSync(folder).sort().slice(0, -LOG_LIMITS.panicsKept)) {
    rmSync(join(folder, old), { force: true });
  }
  return path;
}
