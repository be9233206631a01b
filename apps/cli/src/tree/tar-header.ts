import { Failure } from "@capsem/base";

/**
 * A ustar block (POSIX.1-1988), 512 bytes:
 *   0 name 100 · 100 mode 8 · 108 uid 8 · 116 gid 8 · 124 size 12 · 136 mtime 12 · 148 checksum 8 ·
 *   156 type 1 · 157 link 100 · 257 "ustar\0" 6 · 263 "00" 2 · 345 prefix 155
 * Numbers are octal text, or big-endian binary when the first bit is set.
 */
export const BLOCK_BYTES = 512;
const CHECKSUM_AT = 148;
const CHECKSUM_BYTES = 8;

export interface TarHeader {
  readonly path: string;
  readonly mode: number;
  readonly size: number;
  readonly mtimeSecs: number;
  /** "0" file, "5" directory, "2" symlink; "x", "g", "L", "K" extensions; others are other things. */
  readonly type: string;
  readonly target: string;
}

/** `path` and `target` must fit their fields: see `fitsHeader`. */
export function encodeHeader(header: TarHeader): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  block.write(header.path, 0, 100, "utf8");
  writeOctal(block, 100, 8, header.mode);
  writeOctal(block, 108, 8, 0);
  writeOctal(block, 116, 8, 0);
  writeOctal(block, 124, 12, header.size);
  writeOctal(block, 136, 12, header.mtimeSecs);
  block.write(header.type, 156, 1, "latin1");
  block.write(header.target, 157, 100, "utf8");
  block.write("ustar\u000000", 257, 8, "latin1");
  block.write(`${checksumOf(block).toString(8).padStart(6, "0")}\0 `, CHECKSUM_AT, CHECKSUM_BYTES, "latin1");
  return block;
}

export function fitsHeader(text: string): boolean {
  return Buffer.byteLength(text) <= 100 && /^[\x20-\x7e]*$/.test(text);
}

/** Null for the block of zeros that ends an archive. */
export function decodeHeader(block: Buffer): TarHeader | null {
  if (block.every((byte) => byte === 0)) return null;
  if (readNumber(block, CHECKSUM_AT, CHECKSUM_BYTES) !== checksumOf(block))
    throw broken("a header's checksum is wrong");
  const name = readText(block, 0, 100);
  const prefix = block.toString("latin1", 257, 263) === "ustar\0" ? readText(block, 345, 155) : "";
  return {
    path: prefix === "" ? name : `${prefix}/${name}`,
    mode: readNumber(block, 100, 8),
    size: readNumber(block, 124, 12),
    mtimeSecs: readNumber(block, 136, 12),
    type: String.fromCharCode(block[156] ?? 0),
    target: readText(block, 157, 100),
  };
}

export function broken(what: string): Failure {
  return new Failure("file_failed", `Cannot read tree: ${what}`);
}

/** Text of bytes that must be UTF-8; the replacement character is how one that is not shows. */
export function textOfField(bytes: Buffer): string {
  return bytes.toString("utf8");
}

function readText(block: Buffer, at: number, length: number): string {
  const field = block.subarray(at, at + length);
  const end = field.indexOf(0);
  return textOfField(end < 0 ? field : field.subarray(0, end));
}

function readNumber(block: Buffer, at: number, length: number): number {
  const first = block[at] ?? 0;
  if ((first & 0x80) !== 0) return readBinary(block.subarray(at, at + length));
  const text = block
    .toString("latin1", at, at + length)
    .replace(/[\0 ]+$/, "")
    .trimStart();
  if (text === "") return 0;
  if (!/^[0-7]+$/.test(text)) throw broken("a number in a header is not octal");
  return Number.parseInt(text, 8);
}

function readBinary(field: Buffer): number {
  let value = (field[0] ?? 0) & 0x7f;
  // Negative numbers (a time before 1970) have the next bit set too: nothing here needs them.
  if ((value & 0x40) !== 0) return 0;
  for (const byte of field.subarray(1)) {
    value = value * 256 + byte;
    if (value > Number.MAX_SAFE_INTEGER) throw broken("a number in a header is too large");
  }
  return value;
}

function writeOctal(block: Buffer, at: number, length: number, value: number): void {
  const digits = Math.max(0, Math.trunc(value))
    .toString(8)
    .padStart(length - 1, "0");
  if (digits.length >= length) throw broken("a number does not fit its header");
  block.write(`${digits}\0`, at, length, "latin1");
}

function checksumOf(block: Buffer): number {
  let sum = CHECKSUM_BYTES * 0x20;
  for (let at = 0; at < BLOCK_BYTES; at += 1)
    if (at < CHECKSUM_AT || at >= CHECKSUM_AT + CHECKSUM_BYTES) sum += block[at] ?? 0;
  return sum;
}
