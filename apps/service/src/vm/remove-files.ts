import { readdir, rm, rmdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { apiFailure } from "@capsem/api";
import { messageOf, sleep } from "@capsem/base";
import { isMissing } from "../home/atomic-file.ts";
import { type HomeLayout, type VmFolder, vmFolder } from "../home/layout.ts";
import { TIMES, VM_LIMITS } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";

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

export interface RemovalParts {
  readonly layout: HomeLayout;
  readonly log: ServiceLog;
  /** For fault injection. */
  readonly removePath?: RemovePath;
}

/** The same, tried again where files resist. Throws Failure "internal": a later start goes on. */
export async function removeFilesOf(parts: RemovalParts, id: string): Promise<void> {
  const { layout, log } = parts;
  for (let tries = 1; ; tries++) {
    try {
      return await removeVmFiles(vmFolder(layout, id), parts.removePath ?? removePath);
    } catch (thrown) {
      log("error", "cannot remove files", { vm_id: id, tries, cause: messageOf(thrown) });
      if (tries >= VM_LIMITS.removeTries) {
        const text = `Cannot delete VM "${id}": its files resist, it will be tried again`;
        throw apiFailure("internal", text, { cause: thrown });
      }
      await sleep(TIMES.removeRetryMs);
    }
  }
}
