import { Failure } from "@capsem/base";
import type { GuestErrorKind } from "@capsem/wire";
import { GUEST_LIMITS } from "./limits.ts";
import { readPlainFile } from "./plain-file.ts";

export interface Account {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  /** Supplementary group ids, the primary one included, ascending. */
  readonly groups: readonly number[];
  readonly home: string;
  readonly shell: string;
}

/** 2^32 − 1 means "leave as it is" to the kernel, so it is no id. */
const ID_MAX = 4_294_967_294;

/**
 * Looks `name` up in the workload's own /etc/passwd and /etc/group, which the workload writes: their content
 * is hostile. A line that is not exactly right is as if it were not there; the first right one wins. `root`
 * is always uid 0, so that a broken file can be repaired from outside.
 */
export function findAccount(workloadRoot: string, name: string): Account {
  const passwd = readPlainFile(workloadRoot, ["etc", "passwd"], GUEST_LIMITS.accountsFileBytesMax) ?? "";
  const group = readPlainFile(workloadRoot, ["etc", "group"], GUEST_LIMITS.accountsFileBytesMax) ?? "";
  return parseAccount(passwd, group, name);
}

export function parseAccount(passwd: string, group: string, name: string): Account {
  const found = parsePasswd(passwd, name);
  if (found !== undefined) return { ...found, groups: parseGroups(group, name, found.gid) };
  if (name === "root") return { name, uid: 0, gid: 0, groups: [0], home: "/root", shell: "/bin/bash" };
  throw new Failure<GuestErrorKind>("invalid_input", `Cannot run as "${name}": no such user in the VM`);
}

function parsePasswd(text: string, name: string): Omit<Account, "groups"> | undefined {
  for (const line of text.split("\n")) {
    const fields = line.split(":");
    if (fields.length !== 7 || fields[0] !== name) continue;
    const uid = parseId(fields[2]);
    const gid = parseId(fields[3]);
    const home = fields[5] ?? "";
    const shell = fields[6] === "" ? "/bin/sh" : (fields[6] ?? "");
    if (uid === undefined || gid === undefined || !isPlainPath(home) || !isPlainPath(shell)) continue;
    if (name === "root" && uid !== 0) continue;
    return { name, uid, gid, home, shell };
  }
  return undefined;
}

function parseGroups(text: string, name: string, gid: number): number[] {
  const ids = new Set([gid]);
  for (const line of text.split("\n")) {
    if (ids.size >= GUEST_LIMITS.accountGroupsMax) break;
    const fields = line.split(":");
    if (fields.length !== 4) continue;
    const id = parseId(fields[2]);
    if (id === undefined) continue;
    if ((fields[3] ?? "").split(",").includes(name)) ids.add(id);
  }
  return [...ids].sort((a, b) => a - b);
}

function parseId(text: string | undefined): number | undefined {
  if (text === undefined || !/^(0|[1-9][0-9]{0,9})$/.test(text)) return undefined;
  const id = Number(text);
  return id <= ID_MAX ? id : undefined;
}

function isPlainPath(path: string): boolean {
  if (!path.startsWith("/") || path.length > 1_024) return false;
  for (let at = 0; at < path.length; at++) {
    const code = path.charCodeAt(at);
    if (code < 0x20 || code === 0x7f || code === 0xfffd) return false;
  }
  return true;
}
