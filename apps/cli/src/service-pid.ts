import type { Powers } from "./powers.ts";
import { type FoundProcess, findRun } from "./run-pid.ts";

export function findService(powers: Pick<Powers, "home" | "now">): FoundProcess | null {
  return findRun(powers, "service");
}
