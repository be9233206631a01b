import { closeSync, constants, existsSync, fstatSync, openSync, readSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { checkFoldersAbove, checkOwnFolder } from "@capsem/base/own-folder";
import { RUN_FILE_BYTES_MAX } from "./limits.ts";

/**
 * Before anything in a home is believed: another user's `run` folder may name a process for us to end, or hold a socket
 * that takes our commands. One that is not there yet is nobody's. Throws Failure("folder_unsafe").
 */
export function checkHome(home: string): void {
  if (!existsSync(home)) return;
  const real = realpathSync(home);
  checkFoldersAbove(real);
  const uid = ownUid();
  checkOwnFolder(real, uid);
  if (existsSync(join(real, "run"))) checkOwnFolder(join(real, "run"), uid);
}

export function ownUid(): number {
  return process.getuid?.() ?? -1;
}

/** The text of a small file; never waits for a pipe and follows no link. Throws the system's errors, or when it is no such file. */
export function readSmallFile(path: string, bytesMax: number = RUN_FILE_BYTES_MAX): string {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const found = fstatSync(fd);
    if (!found.isFile() || found.size > bytesMax)
      throw new Error(`${path} is no file of up to ${bytesMax} bytes`);
    const bytes = Buffer.alloc(found.size);
    return bytes.toString("utf8", 0, readSync(fd, bytes, 0, bytes.length, 0));
  } finally {
    closeSync(fd);
  }
}
