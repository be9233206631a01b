import { createHash } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
} from "node:fs";
import { join } from "node:path";
import { Failure, messageOf } from "@capsem/base";
import type { BaseEntry, Baseline } from "./baseline.ts";
import { PACK_BYTES_MAX, PACK_PART_BYTES, TREE_LIMITS } from "./limits.ts";
import { isExactText } from "./safe-path.ts";
import { encodeHead, endMark, paddingOf } from "./tar-writer.ts";

export interface Packed {
  readonly tar: AsyncIterable<Uint8Array>;
  /** Complete when `tar` was read to its end. */
  readonly baseline: Baseline;
}

export interface PackOptions {
  /** For what cannot be copied: sockets, pipes, devices, unreadable files. */
  readonly warn: (text: string) => void;
  readonly progress?: (entries: number, bytes: number) => void;
}

/** A folder as a tar stream: links stay links, and nothing outside the folder is read through one. */
export function packTree(folder: string, options: PackOptions): Packed {
  const baseline = new Map<string, BaseEntry>();
  return { tar: gather(walk(folder, "", baseline, options, { entries: 0, bytes: 0 })), baseline };
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

interface Counts {
  entries: number;
  bytes: number;
}

function* walk(
  folder: string,
  prefix: string,
  baseline: Map<string, BaseEntry>,
  options: PackOptions,
  counts: Counts,
): Generator<Uint8Array> {
  for (const name of readdirSync(folder).sort()) {
    const path = prefix === "" ? name : `${prefix}/${name}`;
    const local = join(folder, name);
    if (!isExactText(name)) {
      options.warn(`skipped ${JSON.stringify(path)}: its name is not UTF-8`);
      continue;
    }
    count(counts, 0);
    options.progress?.(counts.entries, counts.bytes);
    try {
      const stat = lstatSync(local);
      const mode = stat.mode & 0o777;
      const { mtimeMs } = stat;
      if (stat.isDirectory()) {
        yield encodeHead({ kind: "directory", path, mode, size: 0, mtimeMs });
        baseline.set(path, { kind: "directory", mode });
        yield* walk(local, path, baseline, options, counts);
      } else if (stat.isSymbolicLink()) {
        const target = readlinkSync(local);
        yield encodeHead({ kind: "symlink", path, mode: 0o777, size: 0, mtimeMs, target });
        baseline.set(path, { kind: "symlink", target });
      } else if (stat.isFile()) yield* packFile(local, path, baseline, options, counts);
      else options.warn(`skipped ${JSON.stringify(path)}: it is not a file, folder or link`);
    } catch (thrown) {
      if (thrown instanceof Failure) throw thrown;
      options.warn(`skipped ${JSON.stringify(path)}: ${messageOf(thrown)}`);
    }
  }
}

function* packFile(
  local: string,
  path: string,
  baseline: Map<string, BaseEntry>,
  { warn }: PackOptions,
  counts: Counts,
): Generator<Uint8Array> {
  const descriptor = openSync(local, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stat = fstatSync(descriptor);
    const { size, mtimeMs } = stat;
    const mode = stat.mode & 0o777;
    counts.entries -= 1;
    count(counts, size);
    const hash = createHash("sha256");
    yield encodeHead({ kind: "file", path, mode, size, mtimeMs });
    let left = size;
    while (left > 0) {
      const part = Buffer.allocUnsafe(Math.min(left, PACK_PART_BYTES));
      const read = readPart(descriptor, part, path);
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
    closeSync(descriptor);
  }
}

/** After the header was sent nothing can be skipped any more. */
function readPart(descriptor: number, part: Uint8Array, path: string): number {
  try {
    return readSync(descriptor, part, 0, part.length, null);
  } catch (cause) {
    throw new Failure("file_failed", `Cannot read ${JSON.stringify(path)}: ${messageOf(cause)}`, { cause });
  }
}

function count(counts: Counts, bytes: number): void {
  counts.entries += 1;
  counts.bytes += bytes;
  if (counts.entries > TREE_LIMITS.entriesMax || counts.bytes > PACK_BYTES_MAX)
    throw new Failure(
      "too_large",
      `Cannot copy folder: it is over ${TREE_LIMITS.entriesMax} entries or ${PACK_BYTES_MAX} bytes`,
    );
}
