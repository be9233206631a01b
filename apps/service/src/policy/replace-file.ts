import { rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { syncFolder, writeNewFile } from "../home/atomic-file.ts";

/**
 * Replaces a file whole and for good, unless `isCurrent` says that somebody changed it while we thought: then nothing
 * is written, and the answer is false. The question is asked last, when the new bytes are on the disk already.
 */
export async function replaceFile(
  path: string,
  text: string,
  isCurrent: () => Promise<boolean>,
): Promise<boolean> {
  const next = `${path}.next`;
  await writeNewFile(next, text, true);
  let isReplaced = false;
  try {
    if (!(await isCurrent())) return false;
    await rename(next, path);
    isReplaced = true;
  } finally {
    if (!isReplaced) await rm(next, { force: true });
  }
  await syncFolder(dirname(path));
  return true;
}

export type ReplaceFile = typeof replaceFile;
