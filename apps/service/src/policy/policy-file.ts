import type { Stats } from "node:fs";
import { realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { PolicyFaultInfo } from "@capsem/api";
import { messageOf } from "@capsem/base";
import { checkFoldersAbove } from "@capsem/base/own-folder";
import { POLICY_LIMITS } from "@capsem/policy";
import { isMissing } from "../home/atomic-file.ts";
import { openRegularFile } from "../home/regular-file.ts";
import { fileFault } from "./faults.ts";

export type FileRead =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "missing" }
  | { readonly kind: "refused"; readonly fault: PolicyFaultInfo };

const WRITE_BY_GROUP = 0o020;
const WRITE_BY_OTHERS = 0o002;

/**
 * The text of a file that says what is allowed here. A link, a pipe, a file of somebody else and one that others may
 * write are refused: whoever writes it decides what agents may do. `name` is what a fault calls it.
 */
export async function readPolicyFile(path: string, name: string, uid: number): Promise<FileRead> {
  try {
    const folder = await realpath(dirname(path));
    const real = join(folder, path.slice(path.lastIndexOf("/") + 1));
    checkFoldersAbove(real);
    return await readOwn(real, name, uid);
  } catch (thrown) {
    if (isMissing(thrown)) return { kind: "missing" };
    return refused(name, messageOf(thrown));
  }
}

async function readOwn(path: string, name: string, uid: number): Promise<FileRead> {
  const file = await openRegularFile(path);
  try {
    const problem = problemOf(await file.stat(), uid);
    if (problem !== null) return refused(name, `Cannot use "${path}": ${problem}`);
    const bytes = Buffer.alloc(POLICY_LIMITS.fileBytesMax + 1);
    let length = 0;
    while (length < bytes.length) {
      const { bytesRead } = await file.read(bytes, length, bytes.length - length, null);
      if (bytesRead === 0) return decoded(bytes.subarray(0, length), name);
      length += bytesRead;
    }
    return refused(name, `the file is longer than ${POLICY_LIMITS.fileBytesMax} bytes`);
  } finally {
    await file.close();
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
