import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BLOCK_BYTES, encodeHeader } from "./tar-header.ts";
import { encodeHead, endMark, type HeadFields, paddingOf } from "./tar-writer.ts";

/** Entries for hostile archives: whatever is asked is written. */
export interface Forged extends Partial<Omit<HeadFields, "kind">> {
  readonly kind?: HeadFields["kind"];
  /** A type that no honest sender of ours writes. */
  readonly type?: string;
  readonly body?: string | Uint8Array;
}

export function forge(entries: readonly Forged[]): Buffer {
  const blocks: Uint8Array[] = [];
  for (const {
    kind = "file",
    type,
    path = "x",
    body = "",
    mode = 0o644,
    target = "",
    mtimeMs = 0,
  } of entries) {
    const bytes = Buffer.from(body);
    const size = bytes.length;
    blocks.push(
      type === undefined
        ? encodeHead({ kind, path, mode, size, mtimeMs, target })
        : encodeHeader({ type, path, mode, size, mtimeSecs: mtimeMs / 1000, target }),
      bytes,
      paddingOf(size),
    );
  }
  return Buffer.concat([...blocks, endMark()]);
}

/** Setuid bits do not pass through our writer: they are set in its bytes. */
export function withMode(tar: Buffer, mode: number): Buffer {
  const copy = Buffer.from(tar);
  copy.write(`${mode.toString(8).padStart(7, "0")}\0`, 100, "latin1");
  let sum = 256;
  for (let at = 0; at < BLOCK_BYTES; at += 1) if (at < 148 || at >= 156) sum += copy[at] ?? 0;
  copy.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return copy;
}

export async function* once(...parts: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* parts;
}

export async function gather(parts: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const part of parts) all.push(part);
  return Buffer.concat(all);
}

/** A folder of the test's own, removed at its end. */
export async function inFolder(work: (folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "tree-"));
  try {
    await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
