import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

/**
 * A small regular file below a tree that the workload writes, or undefined. No link is followed at any step
 * (each is opened by the descriptor of the one before), a device or FIFO is not read, and nothing above
 * `bytesMax` is.
 */
export function readPlainFile(root: string, steps: readonly string[], bytesMax: number): string | undefined {
  const name = steps.at(-1);
  if (name === undefined) return undefined;
  let at: number | undefined;
  try {
    at = openSync(root, constants.O_RDONLY | constants.O_DIRECTORY);
    for (const step of steps.slice(0, -1)) {
      const next = openSync(`/proc/self/fd/${at}/${step}`, DIRECTORY);
      closeSync(at);
      at = next;
    }
    return readAll(`/proc/self/fd/${at}/${name}`, bytesMax);
  } catch (error) {
    if (isSystemError(error)) return undefined;
    throw error;
  } finally {
    if (at !== undefined) closeSync(at);
  }
}

function readAll(path: string, bytesMax: number): string | undefined {
  const fd = openSync(path, FILE);
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile() || stat.size > bytesMax) return undefined;
    const bytes = Buffer.alloc(stat.size);
    let length = 0;
    while (length < bytes.length) {
      const count = readSync(fd, bytes, length, bytes.length - length, length);
      if (count === 0) break;
      length += count;
    }
    return bytes.toString("utf8", 0, length);
  } finally {
    closeSync(fd);
  }
}

export function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && typeof (error as NodeJS.ErrnoException).code === "string";
}
