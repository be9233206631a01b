import { Failure } from "@capsem/base";
import type { FileEntry, GuestErrorKind } from "@capsem/wire";

/** An entry with its name's bytes, which are what a listing is sorted by. */
export interface RawEntry {
  readonly nameBytes: Uint8Array;
  readonly entry: FileEntry;
}

const ENTRY_HEAD_BYTES = 1 + 4 + 4 + 4 + 8 + 8 + 4 + 1 + 2;

/** `[u64 next cookie]` and entries, as `list` answers. */
export function decodeList(bytes: Buffer): { next: number; entries: RawEntry[] } {
  if (bytes.length < 8) throw malformed();
  const next = Number(bytes.readBigUInt64BE(0));
  const entries: RawEntry[] = [];
  let at = 8;
  while (at < bytes.length) {
    const decoded = decodeEntry(bytes, at);
    entries.push(decoded.raw);
    at = decoded.end;
  }
  return { next, entries };
}

export function decodeStat(bytes: Buffer): FileEntry {
  const { raw, end } = decodeEntry(bytes, 0);
  if (end !== bytes.length) throw malformed();
  return { ...raw.entry, name: "." };
}

function decodeEntry(bytes: Buffer, at: number): { raw: RawEntry; end: number } {
  if (bytes.length - at < ENTRY_HEAD_BYTES) throw malformed();
  const nameAt = at + ENTRY_HEAD_BYTES;
  const nameEnd = nameAt + bytes.readUInt16BE(nameAt - 2);
  if (nameEnd + 2 > bytes.length) throw malformed();
  const targetAt = nameEnd + 2;
  const end = targetAt + bytes.readUInt16BE(nameEnd);
  if (end > bytes.length) throw malformed();
  const type = typeOf(String.fromCharCode(bytes.readUInt8(at)));
  const seconds = Number(bytes.readBigInt64BE(at + 21));
  const nameBytes = bytes.subarray(nameAt, nameEnd);
  return {
    end,
    raw: makeEntry(nameBytes, bytes.subarray(targetAt, end), {
      type,
      mode: bytes.readUInt32BE(at + 1) & 0o7777,
      uid: bytes.readUInt32BE(at + 5),
      gid: bytes.readUInt32BE(at + 9),
      size: clampCount(Number(bytes.readBigUInt64BE(at + 13))),
      mtime_ms: seconds * 1000 + bytes.readUInt32BE(at + 29) / 1e6,
    }),
  };
}

type EntryFacts = Pick<FileEntry, "type" | "mode" | "uid" | "gid" | "size" | "mtime_ms">;

/** Names are bytes; what is not UTF-8 is shown with replacement characters and marked. */
export function makeEntry(nameBytes: Uint8Array, targetBytes: Uint8Array, facts: EntryFacts): RawEntry {
  const name = textOf(nameBytes);
  const target = textOf(targetBytes);
  return {
    nameBytes,
    entry: {
      name: name.text,
      ...facts,
      ...(facts.type === "symlink" ? { target: target.text } : {}),
      ...(name.lossy || target.lossy ? { lossy: true } : {}),
    },
  };
}

export function typeOf(letter: string): FileEntry["type"] {
  if (letter === "f") return "file";
  if (letter === "d") return "directory";
  if (letter === "l") return "symlink";
  return "other";
}

export function clampCount(value: number): number {
  return Number.isSafeInteger(value) && value >= 0 ? value : Number.MAX_SAFE_INTEGER;
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lossy = new TextDecoder("utf-8", { ignoreBOM: true });

function textOf(bytes: Uint8Array): { text: string; lossy: boolean } {
  try {
    return { text: strict.decode(bytes), lossy: false };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return { text: lossy.decode(bytes), lossy: true };
  }
}

function malformed(): Failure<GuestErrorKind> {
  return new Failure("internal", "Cannot read listing: its bytes are malformed");
}
