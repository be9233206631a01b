import { closeSync, constants, fchmodSync, fstatSync, lstatSync, openSync, type Stats } from "node:fs";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import { HOME_LIMITS } from "../limits.ts";
import type { Powers } from "../powers.ts";

export interface InstanceLock {
  release(): void;
}

/**
 * Held by the one service of a home until the process ends, however it ends. The file is never removed, and nobody
 * else may open it: a lock that other users can reach is one that they can take. (An abstract socket is such a lock,
 * also with a secret in its name: /proc/net/unix shows every name to every user.) `run` must be a folder of ours.
 * Throws Failure("already_running") and has changed nothing then.
 */
export function takeInstanceLock(run: string, lockFile: Powers["lockFile"]): InstanceLock {
  const path = join(run, "service.lock");
  for (let tries = 0; tries < HOME_LIMITS.lockTries; tries++) {
    const fd = openSync(
      path,
      constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK,
      0o600,
    );
    try {
      const opened = fstatSync(fd);
      if (!opened.isFile()) throw new Failure("lock_failed", `Cannot lock "${path}": it is no file`);
      if ((opened.mode & 0o077) !== 0) fchmodSync(fd, 0o600);
      if (!lockFile(fd)) {
        throw new Failure("already_running", `Cannot start the service: another one runs for "${run}"`);
      }
      // Somebody who tidied up between our opening and our lock has made it another file's lock.
      if (isStillAt(path, opened)) return { release: () => closeSync(fd) };
    } catch (thrown) {
      closeSync(fd);
      throw thrown;
    }
    closeSync(fd);
  }
  throw new Failure("lock_failed", `Cannot lock "${path}": somebody removes it again and again`);
}

function isStillAt(path: string, { dev, ino }: Stats): boolean {
  try {
    const found = lstatSync(path);
    return found.dev === dev && found.ino === ino;
  } catch {
    // Gone: the next round makes a new one.
    return false;
  }
}
