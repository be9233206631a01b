import { closeSync, constants, fstatSync, openSync } from "node:fs";
import { guestFailure } from "./guest-error.ts";
import { isSystemError } from "./plain-file.ts";
import type { Zygote } from "./zygote.ts";

/**
 * A regular file that a helper opened with the user's rights, opened again through the helper's descriptor. The
 * relay sends it from there, so its bytes cross no other process: under emulation that is most of what a transfer costs.
 */
export class HandedFile {
  readonly fd: number;

  private constructor(fd: number) {
    this.fd = fd;
  }

  /** The helper may be closed afterwards. The caller closes the file. */
  static open(zygote: Zygote, descriptor: number): HandedFile {
    // A helper that has not been waited for keeps its process id, so the path is its own or none.
    if (zygote.hasExited || zygote.pid === undefined) throw lost();
    const fd = openOrLost(`/proc/${zygote.pid}/fd/${descriptor}`);
    if (fstatSync(fd).isFile()) return new HandedFile(fd);
    closeSync(fd);
    throw lost();
  }

  close(): void {
    closeSync(this.fd);
  }
}

function openOrLost(path: string): number {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch (error) {
    if (isSystemError(error)) throw lost(error);
    throw error;
  }
}

function lost(cause?: unknown): Error {
  return guestFailure("internal", "Cannot read file: the helper that opened it ended", cause);
}
