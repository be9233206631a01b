import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  realpathSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { Failure } from "./error.ts";

const WRITE_BY_GROUP_OR_OTHERS = 0o022;
const WRITE_BY_OTHERS = 0o002;
const STICKY = 0o1000;

/** Makes the folder where there is none and returns its real path, below which every name is ours to decide. */
export function openOwnRoot(path: string, uid: number): string {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const real = realpathSync(path);
  checkFoldersAbove(real);
  checkOwnFolder(real, uid);
  return real;
}

/** As above for the next folder down, which is never a link. */
export function ensureOwnFolder(path: string, uid: number): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (thrown) {
    if (codeOf(thrown) !== "EEXIST") throw thrown;
  }
  checkOwnFolder(path, uid);
}

/**
 * Throws Failure("folder_unsafe") unless this is a folder of ours that nobody else may write. One of ours that is too
 * open is closed, if nobody has left anything in it: what is there already may be meant for us.
 */
export function checkOwnFolder(path: string, uid: number): void {
  const fd = openFolder(path, uid);
  try {
    const { uid: owner, mode } = fstatSync(fd);
    if (owner !== uid) throw foreign(path, owner, uid);
    if ((mode & WRITE_BY_GROUP_OR_OTHERS) === 0) return;
    // Closed first: what is found in it afterwards is all that there is.
    fchmodSync(fd, 0o700);
    try {
      checkEntries(path, uid);
    } catch (thrown) {
      // Still open for the next start, which must not take the same folder for a clean one.
      fchmodSync(fd, mode & 0o7777);
      throw thrown;
    }
  } finally {
    closeSync(fd);
  }
}

/** Root may leave things anywhere; it needs no trick. */
function checkEntries(folder: string, uid: number): void {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    const owner = lstatSync(path).uid;
    if (owner !== uid && owner !== 0) throw foreign(path, owner, uid);
  }
}

/**
 * A folder above `path`, which is real, that everybody may write without the sticky bit lets anybody put another one in
 * its place: Failure("folder_unsafe"). Who owns the ones above is not judged: container hosts lend root folders of
 * other users.
 */
export function checkFoldersAbove(path: string): void {
  for (let folder = path; folder !== dirname(folder); ) {
    folder = dirname(folder);
    const { mode } = lstatSync(folder);
    if ((mode & WRITE_BY_OTHERS) !== 0 && (mode & STICKY) === 0) {
      throw unsafe(folder, `everybody may write it, and so replace what is below; "chmod o-w" closes it`);
    }
  }
}

function openFolder(path: string, uid: number): number {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (thrown) {
    if (codeOf(thrown) === "ENOENT") throw thrown;
    const found = lstatSync(path);
    if (found.isSymbolicLink()) throw unsafe(path, "it is a link; remove it, or choose another home");
    if (!found.isDirectory()) throw unsafe(path, "it is no folder; remove it, or choose another home");
    if (found.uid !== uid) throw foreign(path, found.uid, uid);
    throw thrown;
  }
}

function foreign(path: string, owner: number, uid: number): Failure {
  return unsafe(
    path,
    `it belongs to user ${owner}, and we are user ${uid}; remove it, or choose another home`,
  );
}

function unsafe(path: string, state: string): Failure {
  return new Failure("folder_unsafe", `Cannot use ${JSON.stringify(path)}: ${state}`);
}

function codeOf(thrown: unknown): unknown {
  return thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
}
