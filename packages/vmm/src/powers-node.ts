import type { GoldenStorePowers } from "./golden-store.ts";

/** The authority of a golden store, from this process. */
export function goldenStorePowers(): GoldenStorePowers {
  return { pid: process.pid, nowMs: () => Date.now(), isAlive };
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (thrown) {
    // Another user's process may not be signalled, but it is there.
    return thrown instanceof Error && "code" in thrown && thrown.code === "EPERM";
  }
}
