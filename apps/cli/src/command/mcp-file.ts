import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { Failure } from "@capsem/base";
import type { ClientPlace } from "./mcp-clients.ts";

/** A client that runs may write its file as well: the change is made again on what it wrote. */
const ATTEMPTS_MAX = 5;
/** Clients keep whole histories in such files; a larger one is not theirs. */
const FILE_BYTES_MAX = 8 * 1024 * 1024;
/** A new file is the user's alone; one that exists keeps its mode. */
const NEW_FILE_MODE = 0o600;

/**
 * Changes a file as a whole or not at all; true when it is not what it was. `change` gets null for a file that does not
 * exist, and refuses what it cannot read by a Failure that says why.
 */
export async function changeFile(
  { path, root }: Pick<ClientPlace, "path" | "root">,
  change: (text: string | null) => string | null,
): Promise<boolean> {
  if (root !== null) checkFolders(path, root);
  // A link of the user's stays a link: people keep such files elsewhere. A project's could name any file of theirs.
  const target = root === null && existsSync(path) ? realpathSync(path) : path;
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
    const before = read(target);
    const after = changed(path, before, change);
    if (after === null || after === before) return false;
    if (replace(target, before, after)) return true;
  }
  throw new Failure("file_failed", `Cannot change ${JSON.stringify(path)}: somebody else keeps writing it`);
}

function changed(path: string, before: string | null, change: (text: string | null) => string | null) {
  try {
    return change(before);
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    const message = `Cannot change ${JSON.stringify(path)}: ${thrown.message}`;
    throw new Failure(thrown.kind, message, { cause: thrown });
  }
}

/** False when the file is no longer what the change was made on. */
function replace(target: string, before: string | null, after: string): boolean {
  mkdirSync(dirname(target), { recursive: true });
  const fresh = join(dirname(target), `.${basename(target)}.${process.pid}.tmp`);
  const mode = before === null ? NEW_FILE_MODE : statSync(target).mode & 0o777;
  rmSync(fresh, { force: true });
  const file = openSync(fresh, "wx", mode);
  try {
    writeFileSync(file, after);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  if (read(target) !== before) {
    rmSync(fresh);
    return false;
  }
  renameSync(fresh, target);
  return true;
}

/** The folders between a project's own and the file. */
function checkFolders(path: string, root: string): void {
  for (let folder = dirname(path); folder !== root && folder !== dirname(folder); folder = dirname(folder)) {
    const found = lstatSync(folder, { throwIfNoEntry: false });
    if (found !== undefined && !found.isDirectory())
      throw unfit(path, `${JSON.stringify(folder)} is ${found.isSymbolicLink() ? "a link" : "no folder"}`);
  }
}

/** Null: it does not exist. Nothing that is no plain file is waited for, and no link followed: the caller did. */
function read(path: string): string | null {
  const file = openFile(path);
  if (file === null) return null;
  try {
    const found = fstatSync(file);
    if (!found.isFile()) throw unfit(path, "it is no plain file");
    const bytes = found.size > FILE_BYTES_MAX ? null : readAll(file);
    if (bytes === null) throw unfit(path, `it is over ${FILE_BYTES_MAX / 1024 / 1024} MiB`);
    return textOf(path, bytes);
  } finally {
    closeSync(file);
  }
}

function openFile(path: string): number | null {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  } catch (thrown) {
    const code = thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
    if (code === "ENOENT") return null;
    if (code === "ELOOP") throw unfit(path, "it is a link");
    // A socket.
    if (code === "ENXIO") throw unfit(path, "it is no plain file");
    throw thrown;
  }
}

/** Null: it is over the limit, however large it said it was. */
function readAll(file: number): Uint8Array | null {
  const parts: Buffer[] = [];
  for (let bytes = 0; bytes <= FILE_BYTES_MAX; ) {
    const part = Buffer.alloc(CHUNK_BYTES);
    const count = readSync(file, part, 0, part.length, null);
    if (count === 0) return Buffer.concat(parts);
    parts.push(part.subarray(0, count));
    bytes += count;
  }
  return null;
}

const CHUNK_BYTES = 262_144;

function textOf(path: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw unfit(path, "it is not UTF-8");
  }
}

function unfit(path: string, why: string): Failure {
  return new Failure("file_failed", `Cannot change ${JSON.stringify(path)}: ${why}`);
}
