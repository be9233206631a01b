import type { FileInfo } from "@capsem/api";
import { Failure } from "@capsem/base";
import { TREE_LIMITS, type TreeLimits } from "./limits.ts";
import { broken } from "./tar-header.ts";
import type { TarEntry } from "./tar-reader.ts";
import { CHANGED_MEANWHILE, type TreeEntry } from "./tree-entry.ts";

/** A guest's folder; a path is relative to it, "" the folder itself. What it says is hostile. */
export interface FileSource {
  list(
    path: string,
    offset: number,
  ): Promise<{ readonly entries: readonly FileInfo[]; readonly more: boolean }>;
  open(path: string): Promise<{ readonly size: number; readonly body: AsyncIterable<Uint8Array> }>;
  /** Why this one does not come, where the others may; null for what ends the whole. */
  refusalOf(thrown: unknown): string | null;
  /** A link has no content to judge, so it stays where it is. */
  left(path: string): void;
}

interface Level {
  readonly path: string;
  readonly infos: readonly FileInfo[];
  at: number;
}

const PERMISSION_BITS = 0o777;

/**
 * A guest's folder file by file, for who has to judge each: depth first, a folder before what is in it. What is refused
 * comes as absent, so that nobody takes it for removed.
 */
export async function* fetchFiles(
  source: FileSource,
  limits: TreeLimits = TREE_LIMITS,
): AsyncGenerator<TreeEntry> {
  const count = { entries: 0, bytes: 0 };
  const levels: Level[] = [{ path: "", infos: await infosOf(source, "", count, limits), at: 0 }];
  for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
    const info = level.infos[level.at];
    level.at += 1;
    if (info === undefined) {
      levels.pop();
      continue;
    }
    const path = level.path === "" ? info.name : `${level.path}/${info.name}`;
    if (info.type === "symlink") source.left(path);
    const reason = info.lossy === true ? "its name is not UTF-8" : REASONS[info.type];
    if (reason !== undefined) {
      yield { kind: "absent", path, reason };
      continue;
    }
    const found = await unlessRefused(source, async () =>
      info.type === "file"
        ? await fileOf(source, path, info, count, limits)
        : await infosOf(source, path, count, limits),
    );
    if ("refusal" in found) yield { kind: "absent", path, reason: found.refusal };
    else if (Array.isArray(found)) {
      yield { ...headOf("directory", path, info), size: 0, body: nothing() };
      levels.push({ path, infos: found, at: 0 });
    } else {
      yield found;
      // Whoever did not want it left it unread.
      for await (const _ of found.body);
    }
  }
}

async function unlessRefused<T>(
  source: FileSource,
  work: () => Promise<T>,
): Promise<T | { readonly refusal: string }> {
  try {
    return await work();
  } catch (thrown) {
    const refusal = source.refusalOf(thrown);
    if (refusal === null) throw thrown;
    return { refusal };
  }
}

const REASONS: Readonly<Partial<Record<FileInfo["type"], string | null>>> = {
  symlink: null,
  other: "it is not a file, folder or link",
};

interface Count {
  entries: number;
  bytes: number;
}

/** All pages; one that was there when two of them were read is there once. */
async function infosOf(
  source: FileSource,
  path: string,
  count: Count,
  limits: TreeLimits,
): Promise<FileInfo[]> {
  const infos = new Map<string, FileInfo>();
  for (let offset = 0; ; ) {
    const { entries, more } = await source.list(path, offset);
    count.entries += entries.length;
    if (count.entries > limits.entriesMax) throw broken(`it has over ${limits.entriesMax} entries`);
    for (const info of entries) {
      if (info.name === "" || info.name === "." || info.name === ".." || info.name.includes("/"))
        throw broken(`${JSON.stringify(info.name.slice(0, 80))} is no name`);
      infos.set(info.name, info);
    }
    offset += entries.length;
    if (!more || entries.length === 0) return [...infos.values()];
  }
}

async function fileOf(
  source: FileSource,
  path: string,
  info: FileInfo,
  count: Count,
  limits: TreeLimits,
): Promise<TarEntry> {
  const { size, body } = await source.open(path);
  count.bytes += size;
  if (count.bytes > limits.bytesMax) throw broken(`it is over ${limits.bytesMax} bytes`);
  return { ...headOf("file", path, info), size, body: exactly(body, size) };
}

function headOf<K extends "file" | "directory">(kind: K, path: string, info: FileInfo) {
  const { mode, mtime_ms: mtimeMs } = info;
  return {
    kind,
    path,
    mode: mode & PERMISSION_BITS,
    mtimeMs: Number.isFinite(mtimeMs) ? mtimeMs : 0,
    target: "",
  };
}

/** What was said is what is taken into account: more of it, or less, is another file by now. */
async function* exactly(body: AsyncIterable<Uint8Array>, size: number): AsyncGenerator<Buffer> {
  let left = size;
  const changed = () => new Failure(CHANGED_MEANWHILE, "it changed while it was copied");
  for await (const part of body) {
    left -= part.length;
    if (left < 0) throw changed();
    yield Buffer.from(part.buffer, part.byteOffset, part.length);
  }
  if (left > 0) throw changed();
}

async function* nothing(): AsyncGenerator<Buffer> {
  // A folder has no bytes.
}
