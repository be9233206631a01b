import { NAME_BYTES_MAX, PATH_BYTES_MAX } from "./limits.ts";
import { broken } from "./tar-header.ts";

/**
 * The names of an archived path, none for the root itself. An honest archive of a folder has relative paths only,
 * so one that is absolute, climbs, or hides a NUL fails the whole tree.
 */
export function parsePath(path: string): string[] {
  const shown = JSON.stringify(path.slice(0, 80));
  if (path === "" || path.includes("\0")) throw broken(`path ${shown} is empty or has NUL`);
  if (path.startsWith("/")) throw broken(`path ${shown} is absolute`);
  if (Buffer.byteLength(path) > PATH_BYTES_MAX) throw broken(`path ${shown} is too long`);
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  for (const name of names) {
    if (name === "..") throw broken(`path ${shown} climbs out of the tree`);
    if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw broken(`path ${shown} has a name that is too long`);
  }
  return names;
}

/** A name whose bytes were no UTF-8 cannot be made again here. */
export function isExactText(path: string): boolean {
  return !path.includes("\ufffd");
}

/**
 * True when a link at `names` may be made: its target cannot leave the tree. Climbing is allowed at the target's
 * beginning alone, where only real folders are passed; after a name that may be a link ("a/../..") it is not.
 */
export function staysInside(names: readonly string[], target: string): boolean {
  if (target === "" || target.startsWith("/") || target.includes("\0")) return false;
  const parts = target.split("/").filter((part) => part !== "" && part !== ".");
  let climbed = 0;
  while (parts[climbed] === "..") climbed += 1;
  return climbed <= names.length - 1 && !parts.slice(climbed).includes("..");
}
