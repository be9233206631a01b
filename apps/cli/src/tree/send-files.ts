import { createHash, type Hash } from "node:crypto";
import { closeSync } from "node:fs";
import { Failure } from "@capsem/base";
import type { BaseEntry, Baseline } from "./baseline.ts";
import { PACK_PART_BYTES } from "./limits.ts";
import { type LocalEntry, WalkCount, type WalkOptions, walkFolder } from "./local-walk.ts";
import { type LocalFile, openLocal, readPart } from "./pack.ts";

/** Where files go, one by one; a path is relative to the folder that they go into. */
export interface FileSink {
  makeFolder(path: string): Promise<void>;
  write(
    path: string,
    body: AsyncIterable<Uint8Array>,
    about: { size: number; mode: number },
  ): Promise<unknown>;
  /** Why this one is not taken, where the others may be; null for what ends the whole. */
  refusalOf(thrown: unknown): string | null;
}

export interface SendReport {
  readonly baseline: Baseline;
  readonly bytes: number;
  /** Not taken over there, with the reason; of a folder nothing that is in it either. */
  readonly refused: readonly { readonly path: string; readonly reason: string }[];
  /** A link has no content to judge, so none is sent. */
  readonly links: readonly string[];
}

/** A folder file by file, for who has to judge each: what is refused stays here, and the rest goes. */
export async function sendFiles(
  folder: string,
  sink: FileSink,
  { warn, progress }: Pick<WalkOptions, "warn" | "progress">,
): Promise<SendReport> {
  const baseline = new Map<string, BaseEntry>();
  const refused: { path: string; reason: string }[] = [];
  const links: string[] = [];
  const closed = new Set<string>();
  const count = new WalkCount();
  const options = { warn, closed, ...(progress === undefined ? {} : { progress }) };
  for (const entry of walkFolder(folder, options, count)) {
    const { kind, path, mode } = entry;
    if (kind === "symlink") {
      links.push(path);
      continue;
    }
    try {
      if (kind === "file") await sendFile(entry, sink, baseline, warn, count);
      else {
        await sink.makeFolder(path);
        baseline.set(path, { kind, mode });
      }
    } catch (thrown) {
      const reason = sink.refusalOf(thrown);
      if (reason === null) throw thrown;
      refused.push({ path, reason });
      closed.add(path);
    }
  }
  return { baseline, bytes: count.bytes, refused, links };
}

async function sendFile(
  { local, path }: LocalEntry,
  sink: FileSink,
  baseline: Map<string, BaseEntry>,
  warn: WalkOptions["warn"],
  count: WalkCount,
): Promise<void> {
  const file = openLocal(local, path, warn);
  if (file === null) return;
  try {
    const { size, mode, mtimeMs } = file;
    count.add(0, size);
    const hash = createHash("sha256");
    await sink.write(path, bytesOf(file, path, hash), { size, mode });
    baseline.set(path, { kind: "file", mode, size, mtimeMs, sha256: hash.digest("hex") });
  } finally {
    closeSync(file.descriptor);
  }
}

/** As many bytes as were promised: what grew meanwhile is cut. */
async function* bytesOf(
  { descriptor, size }: LocalFile,
  path: string,
  hash: Hash,
): AsyncGenerator<Uint8Array> {
  for (let left = size; left > 0; ) {
    const part = Buffer.allocUnsafe(Math.min(left, PACK_PART_BYTES));
    const read = readPart(descriptor, part, path);
    if (read === 0)
      throw new Failure("file_failed", `Cannot copy ${JSON.stringify(path)}: it became shorter meanwhile`);
    hash.update(part.subarray(0, read));
    left -= read;
    yield part.subarray(0, read);
  }
}
