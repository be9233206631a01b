import { closeSync, constants, fstatSync, openSync, type Stats } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { Failure } from "@capsem/base";

const NO_TRICKS = constants.O_NOFOLLOW | constants.O_NONBLOCK;

/**
 * Opens a file for reading, and nothing else that may lie at its path: a pipe would hold us for ever, a link would
 * lead elsewhere. The caller closes it. Throws Failure("file_refused"), or the system's error when there is none.
 */
export async function openRegularFile(path: string): Promise<FileHandle> {
  return checked(path, await opened(path, constants.O_RDONLY));
}

/** As above, in one go: of a small file that is read often, where a turn for each step costs more than the steps. */
export function openRegularFileNow(path: string): { readonly fd: number; readonly stats: Stats } {
  const fd = openedNow(path);
  try {
    const stats = fstatSync(fd);
    if (!stats.isFile()) throw refused(path, "it is no file");
    return { fd, stats };
  } catch (thrown) {
    closeSync(fd);
    throw thrown;
  }
}

/** Makes the file where there is none. The same holds, and a second name of it is refused: it is somebody's other file. */
export async function openForAppending(path: string): Promise<FileHandle> {
  return checked(path, await opened(path, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT), true);
}

/** All of a file that may have `bytesMax` bytes. Throws as above, and when it is larger. */
export async function readRegularFile(path: string, bytesMax: number): Promise<Buffer> {
  const file = await openRegularFile(path);
  try {
    const bytes = Buffer.alloc(Math.min((await file.stat()).size, bytesMax) + 1);
    let length = 0;
    while (length < bytes.length) {
      const { bytesRead } = await file.read(bytes, length, bytes.length - length, null);
      if (bytesRead === 0) return bytes.subarray(0, length);
      length += bytesRead;
    }
    // It is longer than it was just now, or than it may be.
    throw refused(path, `it has more than ${length - 1} bytes`);
  } finally {
    await file.close();
  }
}

async function opened(path: string, flags: number): Promise<FileHandle> {
  try {
    return await open(path, flags | NO_TRICKS, 0o600);
  } catch (thrown) {
    throw ours(path, thrown);
  }
}

function openedNow(path: string): number {
  try {
    return openSync(path, constants.O_RDONLY | NO_TRICKS);
  } catch (thrown) {
    throw ours(path, thrown);
  }
}

function ours(path: string, thrown: unknown): unknown {
  const code = thrown instanceof Error && "code" in thrown ? thrown.code : "";
  if (code === "ELOOP") return refused(path, "it is a link", thrown);
  // A socket, or a pipe that nobody reads.
  return code === "ENXIO" ? refused(path, "it is no file", thrown) : thrown;
}

async function checked(path: string, file: FileHandle, isSingle = false): Promise<FileHandle> {
  try {
    const found = await file.stat();
    if (!found.isFile()) throw refused(path, "it is no file");
    if (isSingle && found.nlink > 1) throw refused(path, "it has another name elsewhere");
    return file;
  } catch (thrown) {
    await file.close();
    throw thrown;
  }
}

function refused(path: string, state: string, cause?: unknown): Failure {
  return new Failure("file_refused", `Cannot use "${path}": ${state}`, { cause });
}
