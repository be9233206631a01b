import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Panic } from "@capsem/api";
import { LOG_LIMITS, TROUBLE_LIMITS } from "../limits.ts";

/** What is known of a process that ended abnormally. */
export interface Crash {
  readonly process: string;
  readonly pid: number;
  readonly time: Date;
  readonly thrown: unknown;
}

export function panicOf({ process, pid, time, thrown }: Crash): Panic {
  const stack = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
  const lines = stack.split("\n");
  // A message may have several lines: frames begin where the engine says "at".
  const first = lines.findIndex((line) => /^\s+at /.test(line));
  const frames = first < 0 ? [] : lines.slice(first, first + TROUBLE_LIMITS.panicFramesMax);
  const message = (first < 0 ? lines : lines.slice(0, first)).join("\n");
  return {
    process,
    pid,
    time: time.toISOString(),
    message: message.slice(0, TROUBLE_LIMITS.panicMessageCharactersMax),
    location: frames[0]?.trim() ?? null,
    frames: frames.map((frame) => frame.trim()),
  };
}

/**
 * Writes logs/panics/TIME-PROCESS-PID.json and removes the oldest above the limit. Synchronous: for the process
 * that panics it is the last thing that it does.
 */
export function writePanic(folder: string, panic: Panic): string {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const name = `${panic.time.replaceAll(":", "-")}-${panic.process}-${panic.pid}.json`;
  const path = join(folder, name);
  writeFileSync(path, `${JSON.stringify(panic, null, 2)}\n`, { mode: 0o600, flag: "wx" });
  for (const old of readdirSync(folder).sort().slice(0, -LOG_LIMITS.panicsKept)) {
    rmSync(join(folder, old), { force: true });
  }
  return path;
}
