import { BLOCK_BYTES, encodeHeader, fitsHeader } from "./tar-header.ts";

export interface HeadFields {
  readonly kind: "file" | "directory" | "symlink";
  readonly path: string;
  readonly mode: number;
  readonly size: number;
  readonly mtimeMs: number;
  readonly target?: string;
}

const TYPES = { file: "0", directory: "5", symlink: "2" } as const;
/** Largest size that eleven octal digits hold. */
const OCTAL_SIZE_MAX = 0o77777777777;

/** The blocks before an entry's bytes: its header, and a pax header where a field does not fit. */
export function encodeHead(entry: HeadFields): Buffer {
  const path = entry.kind === "directory" ? `${entry.path}/` : entry.path;
  const target = entry.target ?? "";
  const records: string[] = [];
  if (!fitsHeader(path)) records.push(recordOf("path", path));
  if (!fitsHeader(target)) records.push(recordOf("linkpath", target));
  if (entry.size > OCTAL_SIZE_MAX) records.push(recordOf("size", String(entry.size)));
  const header = encodeHeader({
    path: fitsHeader(path) ? path : "long-name",
    target: fitsHeader(target) ? target : "",
    mode: entry.mode,
    size: entry.size > OCTAL_SIZE_MAX ? 0 : entry.size,
    mtimeSecs: Math.floor(entry.mtimeMs / 1000),
    type: TYPES[entry.kind],
  });
  if (records.length === 0) return header;
  const body = Buffer.from(records.join(""));
  const extension = { path: "pax", target: "", mode: 0o644, size: body.length, mtimeSecs: 0, type: "x" };
  return Buffer.concat([encodeHeader(extension), body, paddingOf(body.length), header]);
}

export function paddingOf(size: number): Buffer {
  return Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
}

export function endMark(): Buffer {
  return Buffer.alloc(2 * BLOCK_BYTES);
}

function recordOf(key: string, value: string): string {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  let length = rest + String(rest).length;
  if (rest + String(length).length > length) length += 1;
  return `${length} ${key}=${value}\n`;
}
