import { statSync } from "node:fs";
import { join } from "node:path";
import { checkHome, readSmallFile } from "./own-home.ts";
import type { Powers } from "./powers.ts";
import { type ProcessFacts, processFacts } from "./process-table.ts";

/** Clocks of the kernel and of file systems tick apart by less than this. */
const CLOCK_MARGIN_MS = 1_000;

export interface FoundProcess extends ProcessFacts {
  readonly pid: number;
}

/**
 * The process that `run/NAME.pid` names. One that began after the file was written only inherited the number, so
 * it is a stranger and never gets a signal from here.
 */
export function findRun(
  powers: Pick<Powers, "home" | "now">,
  name: "service" | "gateway",
): FoundProcess | null {
  checkHome(powers.home);
  const path = join(powers.home, "run", `${name}.pid`);
  try {
    const pid = Number(/^[1-9][0-9]{0,9}/.exec(readSmallFile(path))?.[0] ?? 0);
    const facts = pid === 0 ? null : processFacts(pid, powers.now());
    if (facts === null || facts.startedAtMs > statSync(path).mtimeMs + CLOCK_MARGIN_MS) return null;
    return { pid, ...facts };
  } catch {
    // No file: no process that could be named.
    return null;
  }
}
