import { assert, concat, utf8 } from "@capsem/base";

/** One entry of an archive. `path` is relative, without `./`; parents must come before their children. */
export type CpioEntry =
  | { readonly kind: "directory"; readonly path: string; readonly mode: number }
  | { readonly kind: "file"; readonly path: string; readonly mode: number; readonly bytes: Uint8Array }
  | { readonly kind: "link"; readonly path: string; readonly target: string }
  | {
      readonly kind: "device";
      readonly path: string;
      readonly mode: number;
      readonly major: number;
      readonly minor: number;
    };

const MAGIC = "070701";
const TRAILER = "TRAILER!!!";
const ALIGNMENT = 4;
/** The kernel reads archives to a multiple of this. */
const BLOCK = 512;
const FIELD_MAX = 0xffff_ffff;

const TYPE_BITS = { directory: 0o040000, file: 0o100000, link: 0o120000, device: 0o020000 } as const;

/**
 * Writes a `newc` archive, the format that the kernel unpacks as its first root file system. Owner 0, time 0
 * and counted inode numbers: the same entries always give the same bytes.
 *
 *   "070701" ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
 *   (13 fields of 8 hex digits), name NUL, padding to 4, content, padding to 4
 */
export function encodeCpio(entries: readonly CpioEntry[]): Uint8Array {
  const seen = new Set<string>();
  const parts: Uint8Array[] = [];
  let inode = 1;
  for (const entry of entries) {
    checkPath(entry.path, seen);
    parts.push(...record(entry.path, TYPE_BITS[entry.kind] | modeOf(entry), inode, contentOf(entry), entry));
    inode += 1;
  }
  parts.push(...record(TRAILER, 0, 0, new Uint8Array(0), undefined));
  const bytes = concat(parts);
  return concat([bytes, padding(bytes.length, BLOCK)]);
}

function checkPath(path: string, seen: Set<string>): void {
  const names = path.split("/");
  assert(!path.includes("\0") && path !== TRAILER, `cpio path ${JSON.stringify(path)} cannot be written`);
  assert(
    names.every((name) => name !== "" && name !== "." && name !== ".."),
    `cpio path ${JSON.stringify(path)} is not plain`,
  );
  const parent = names.slice(0, -1).join("/");
  assert(parent === "" || seen.has(parent), `cpio path ${JSON.stringify(path)} comes before its folder`);
  assert(!seen.has(path), `cpio path ${JSON.stringify(path)} comes twice`);
  seen.add(path);
}

function modeOf(entry: CpioEntry): number {
  if (entry.kind === "link") return 0o777;
  assert((entry.mode & ~0o7777) === 0, `cpio mode ${entry.mode} has more than permission bits`);
  return entry.mode;
}

function contentOf(entry: CpioEntry): Uint8Array {
  if (entry.kind === "file") return entry.bytes;
  return entry.kind === "link" ? utf8(entry.target) : new Uint8Array(0);
}

function record(
  path: string,
  mode: number,
  inode: number,
  content: Uint8Array,
  entry: CpioEntry | undefined,
): Uint8Array[] {
  const name = utf8(`${path}\0`);
  const device = entry?.kind === "device" ? entry : { major: 0, minor: 0 };
  const linkCount = entry?.kind === "directory" ? 2 : 1;
  const fields = [
    inode,
    mode,
    0,
    0,
    linkCount,
    0,
    content.length,
    0,
    0,
    device.major,
    device.minor,
    name.length,
    0,
  ];
  const header = concat([utf8(MAGIC + fields.map(hex).join("")), name]);
  return [header, padding(header.length, ALIGNMENT), content, padding(content.length, ALIGNMENT)];
}

function hex(value: number): string {
  assert(Number.isInteger(value) && value >= 0 && value <= FIELD_MAX, `cpio field ${value} is out of range`);
  return value.toString(16).toUpperCase().padStart(8, "0");
}

function padding(length: number, to: number): Uint8Array {
  return new Uint8Array((to - (length % to)) % to);
}
