import { spawnSync } from "node:child_process";
import { Failure } from "./error.ts";

/** As the program numbers its descriptors. */
const LOCKED_FD = 3;
const HELD_BY_ANOTHER = 1;
/** Never waits for the lock; only a machine that stands still is slower. */
const TIMEOUT_MS = 10_000;

/**
 * A lock of the kernel, which it frees when the last descriptor of this opening is closed, however its process ends.
 * Node has no call for it, but the lock belongs to the opening and not to a process: `flock` takes it through its copy
 * of the descriptor, ends, and it stays ours. Children do not inherit the descriptor. Throws Failure("lock_failed").
 */
export function lockFile(fd: number): boolean {
  for (const [program, ...words] of [["flock"], ["busybox", "flock"]] as const) {
    const { error, status, stderr } = spawnSync(program, [...words, "-n", "-x", String(LOCKED_FD)], {
      stdio: ["ignore", "ignore", "pipe", fd],
      env: { PATH: `${process.env.PATH ?? ""}:/usr/sbin:/usr/bin:/sbin:/bin`, LANG: "C" },
      timeout: TIMEOUT_MS,
    });
    if (error !== undefined && "code" in error && error.code === "ENOENT") continue;
    if (status === 0) return true;
    if (status === HELD_BY_ANOTHER) return false;
    const why = error?.message ?? stderr.toString().trim();
    throw new Failure("lock_failed", `Cannot take a lock: ${program} says "${why}"`, { cause: error });
  }
  throw new Failure("lock_failed", "Cannot take a lock: flock (of util-linux) is not installed");
}
