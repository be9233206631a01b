import { readdir, rm, rmdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { isMissing } from "../home/atomic-file.ts";
import type { VmFolder } from "../home/layout.ts";

export type RemovePath = (path: string) => Promise<void>;

export const removePath: RemovePath = (path) => rm(path, { recursive: true, force: true });

/**
 * Removes a VM's folder with its record last: whatever interrupts this, the record says `deleting` and a later
 * start goes on. Owners of a removed VM must be gone.
 */
export async function removeVmFiles(paths: VmFolder, remove: RemovePath = removePath): Promise<void> {
  const record = basename(paths.record);
  try {
    for (const name of await readdir(paths.folder)) {
      if (name !== record) await remove(join(paths.folder, name));
    }
    await remove(paths.record);
    await rmdir(paths.folder);
  } catch (thrown) {
    // Something else in the place of a folder is no VM's any more.
    if (isNoFolder(thrown)) await remove(paths.folder);
    else if (!isMissing(thrown)) throw thrown;
  }
}

function isNoFolder(thrown: unknown): boolean {
  return thrown instanceof Error && "code" in thrown && thrown.code === "ENOTDIR";
}
