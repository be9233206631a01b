import { closeSync, lstatSync, readSync, realpathSync, type Stats, statSync } from "node:fs";
import { dirname, join } from "node:path";
import type { PolicyFaultInfo } from "@capsem/api";
import { messageOf } from "@capsem/base";
import { checkFoldersAbove } from "@capsem/base/own-folder";
import { POLICY_LIMITS } from "@capsem/policy";
import { isMissing } from "../home/atomic-file.ts";
import { openRegularFileNow } from "../home/regular-file.ts";
import { fileFault } from "./faults.ts";

export type FileRead =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "missing" }
  | { readonly kind: "refused"; readonly fault: PolicyFaultInfo };

const WRITE_BY_GROUP = 0o020;
const WRITE_BY_OTHERS = 0o002;

const IF_THERE = { throwIfNoEntry: false } as const;

/**
 * The text of a file that says what is allowed here. A link, a pipe, a file of somebody else and one that others may
 * write are refused: whoever writes it decides what agents may do. `name` is what a fault calls it. All files are
 * looked at several times for one edit: in one go, which takes the event loop a fifth of the time of going and coming
 * back for each of seven steps.
 */
export function readPolicyFile(path: string, name: string, uid: number): FileRead {
  try {
    if (statSync(dirname(path), IF_THERE) === undefined) return { kind: "missing" };
    const folder = realpathSync.native(dirname(path));
    const real = join(folder, path.slice(path.lastIndexOf("/") + 1));
    checkFoldersAbove(real);
    if (lstatSync(real, IF_THERE) === undefined) return { kind: "missing" };
    return readOwn(real, name, uid);
  } catch (thrown) {
    if (isMissing(thrown)) return { kind: "missing" };
    return refused(name, messageOf(thrown));
  }
}

function readOwn(path: string, name: string, uid: number): FileRead {
  const { fd, stats } = openRegularFileNow(path);
  try {
    const problem = problemOf(stats, uid);
    if (problem !== null) return refused(name, `Cannot use "${path}": ${problem}`);
    const { fileBytesMax } = POLICY_LIMITS;
    // Room for what is there and one more; it may grow while it is read.
    let bytes = Buffer.allocUnsafe(Math.min(stats.size, fileBytesMax) + 1);
    let length = 0;
    while (length <= fileBytesMax) {
      if (length === bytes.length) bytes = Buffer.concat([bytes], fileBytesMax + 1);
      const bytesRead = readSync(fd, bytes, length, bytes.length - length, null);
      if (bytesRead === 0) return decoded(bytes.subarray(0, length), name);
      length += bytesRead;
    }
    return refused(name, `the file is longer than ${fileBytesMax} bytes`);
  } finally {
    closeSync(fd);
  }
}

/** Root may write anywhere anyway. A group that has the number of its user is, by custom, that user alone. */
function problemOf({ uid: owner, gid, mode }: Stats, uid: number): string | null {
  if (owner !== uid && owner !== 0) return `it belongs to user ${owner}, and we are user ${uid}`;
  const isOpen = (mode & WRITE_BY_OTHERS) !== 0 || ((mode & WRITE_BY_GROUP) !== 0 && gid !== owner);
  return isOpen ? 'others may write it; "chmod go-w" closes it' : null;
}

function decoded(bytes: Uint8Array, name: string): FileRead {
  try {
    return { kind: "text", text: new TextDecoder("utf-8", { fatal: true }).decode(bytes) };
  } catch {
    return refused(name, "the file is not UTF-8");
  }
}

function refused(name: string, message: string): FileRead {
  return { kind: "refused", fault: fileFault(name, message) };
}
