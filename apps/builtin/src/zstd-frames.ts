import { Failure } from "@capsem/base";
import { FETCH_LIMITS } from "./limits.ts";

/**
 * The frames of a zstd body (RFC 8878), found by their blocks' lengths. What a decoder would allocate is known before
 * one is made: the window of each is bounded. Throws "upstream_failed", for what no encoder for the web makes too.
 */
export function zstdFrames(body: Uint8Array): Uint8Array[] {
  const frames: Uint8Array[] = [];
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  for (let at = 0; at < body.length; ) {
    if (at + 8 > body.length) throw bad("it is cut off");
    const magic = view.getUint32(at, true);
    if ((magic & 0xfffffff0) >>> 0 === SKIPPABLE) {
      at += 8 + view.getUint32(at + 4, true);
      if (at > body.length) throw bad("it is cut off");
      continue;
    }
    if (magic !== MAGIC) throw bad("it is no zstd");
    const end = frameEnd(body, at);
    frames.push(body.subarray(at, end));
    at = end;
  }
  if (frames.length === 0) throw bad("it has no frame");
  return frames;
}

const MAGIC = 0xfd2fb528;
const SKIPPABLE = 0x184d2a50;
const BLOCK_BYTES_MAX = 128 * 1024;
const BLOCK_RLE = 1;
const BLOCK_RESERVED = 3;

function frameEnd(body: Uint8Array, start: number): number {
  const flags = body[start + 4] ?? 0;
  const isSingle = (flags & 0x20) !== 0;
  const dictionaryBytes = [0, 1, 2, 4][flags & 3] ?? 0;
  if ((flags & 0x08) !== 0) throw bad("a reserved bit is set");
  const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][flags >> 6] ?? 0;
  const sizeAt = start + 5 + (isSingle ? 0 : 1) + dictionaryBytes;
  if (sizeAt + sizeBytes + 3 > body.length) throw bad("it is cut off");
  for (let at = sizeAt - dictionaryBytes; at < sizeAt; at += 1)
    if (body[at] !== 0) throw bad("it needs a dictionary");
  const size = littleEndian(body, sizeAt, sizeBytes) + (sizeBytes === 2 ? 256 : 0);
  if (size > FETCH_LIMITS.bodyBytesMax) throw tooLarge();
  const windowBytes = isSingle ? size : windowOf(body[start + 5] ?? 0);
  if (!isSingle && windowBytes > FETCH_LIMITS.zstdWindowBytesMax)
    throw bad(`its window is ${windowBytes} bytes`);
  const end = blocksEnd(body, sizeAt + sizeBytes) + ((flags & 0x04) !== 0 ? 4 : 0);
  if (end > body.length) throw bad("it is cut off");
  return end;
}

function blocksEnd(body: Uint8Array, start: number): number {
  for (let at = start; ; ) {
    if (at + 3 > body.length) throw bad("it is cut off");
    const header = littleEndian(body, at, 3);
    const type = (header >> 1) & 3;
    const bytes = header >> 3;
    if (type === BLOCK_RESERVED || bytes > BLOCK_BYTES_MAX) throw bad("a block is none");
    at += 3 + (type === BLOCK_RLE ? 1 : bytes);
    if (at > body.length) throw bad("it is cut off");
    if ((header & 1) === 1) return at;
  }
}

function windowOf(descriptor: number): number {
  const base = 2 ** (10 + (descriptor >> 3));
  return base + (base / 8) * (descriptor & 7);
}

function littleEndian(body: Uint8Array, at: number, bytes: number): number {
  let value = 0;
  for (let index = bytes - 1; index >= 0; index -= 1) value = value * 256 + (body[at + index] ?? 0);
  return value;
}

function bad(state: string): Failure {
  return new Failure("upstream_failed", `Cannot decompress the body: ${state} (zstd)`);
}

export function tooLarge(): Failure {
  const limit = FETCH_LIMITS.bodyBytesMax;
  return new Failure("too_large", `Cannot take the body: it is over ${limit} bytes`);
}
