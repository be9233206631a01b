import { join } from "node:path";

/** The parts of a home that the gateway knows. */
export function runFolder(home: string): string {
  return join(home, "run");
}

export function logFolder(home: string): string {
  return join(home, "logs");
}
