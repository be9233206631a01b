import { createHash } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { Failure, messageOf } from "@capsem/base";
import type { BaseEntry, Baseline } from "./baseline.ts";
import { PACK_PART_BYTES } from "./limits.ts";
import { type LocalEntry, WalkCount, type WalkOptions, walkFolder } from "./local-walk.ts";
import { encodeHead, endMark, paddingOf } from "./tar-writer.ts";

export interface Packed {
  readonly tar: AsyncIterable<Uint8Array>;
  /** Complete when `tar` was read to its end. */
  readonly baseline: Baseline;
}

export type PackOptions = Pick<WalkOptions, "warn" | "progress">;

/** A folder as a tar stream: links stay links, and nothing outside the folder is read through one. */
export function packTree(folder: string, options: PackOptions): Packed {
  const baseline = new Map<string, BaseEntry>();
  return { tar: gather(blocksOf(folder, baseline, options)), baseline };
}

/** Small blocks become parts worth sending. */
async function* gather(blocks: Iterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let parts: Uint8Array[] = [];
  let bytes = 0;
  for (const block of blocks) {
    parts.push(block);
    bytes += block.length;
    if (bytes < PACK_PART_BYTES) continue;
    yield Buffer.concat(parts);
    parts = [];
    bytes = 0;
  }
  yield Buffer.concat([...parts, endMark()]);
}

function* blocksOf(
  folder: string,
  baseline: Map<string, BaseEntry>,
  options: PackOptions,
): Generator<Uint8Array> {
  const count = new WalkCount();
  for (const entry of walkFolder(folder, options, count)) {
    const { kind, path, mode, mtimeMs } = entry;
    switch (kind) {
      case "directory":
        yield encodeHead({ kind, path, mode, size: 0, mtimeMs });
        baseline.set(path, { kind, mode });
        break;
      case "symlink":
        yield encodeHead({ kind, path, mode: 0o777, size: 0, mtimeMs, target: entry.target });
        baseline.set(path, { kind, target: entry.target });
        break;
      case "file":
        yield* packFile(entry, baseline, options, count);
    }
  }
}

function* packFile(
  { local, path }: LocalEntry,
  baseline: Map<string, BaseEntry>,
  { warn }: PackOptions,
  count: WalkCount,
): Generator<Uint8Array> {
  const file = openLocal(local, path, warn);
  if (file === null) return;
  try {
    const { size, mtimeMs, mode } = file;
    count.add(0, size);
    const hash = createHash("sha256");
    yield encodeHead({ kind: "file", path, mode, size, mtimeMs });
    let left = size;
    while (left > 0) {
      const part = Buffer.allocUnsafe(Math.min(left, PACK_PART_BYTES));
      const read = readPart(file.descriptor, part, path);
      // The header's size is promised already: a file that shrank meanwhile is filled up with zeros.
      if (read === 0) {
        warn(`${JSON.stringify(path)} became shorter while it was copied`);
        part.fill(0);
      }
      const bytes = read === 0 ? part : part.subarray(0, read);
      hash.update(bytes);
      left -= bytes.length;
      yield bytes;
    }
    yield paddingOf(size);
    baseline.set(path, { kind: "file", mode, size, mtimeMs, sha256: hash.digest("hex") });
  } finally {
    closeSync(file.descriptor);
  }
}

export interface LocalFile {
  /** The caller closes it. */
  readonly descriptor: number;
  readonly mode: number;
  readonly size: number;
  readonly mtimeMs: number;
}

/** Null, and a warning, where it cannot be opened; never through a link. */
export function openLocal(local: string, path: string, warn: PackOptions["warn"]): LocalFile | null {
  try {
    const descriptor = openSync(local, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const { mode, size, mtimeMs } = fstatSync(descriptor);
    return { descriptor, mode: mode & 0o777, size, mtimeMs };
  } catch (thrown) {
    warn(`skipped ${JSON.stringify(path)}: ${messageOf(thrown)}`);
    return null;
  }
}

/** After its beginning was sent nothing can be skipped any more. */
export function readPart(descriptor: number, part: Uint8Array, path: string): number {
  try {
    return readSync(descriptor, part, 0, part.length, null);
  } catch (cause) {
    throw new Failure("file_failed", `Cannot read ${JSON.stringify(path)}: ${messageOf(cause)}`, { cause });
  }
}
