import { constants } from "node:fs";
import { chmod, copyFile, rename, rm, stat } from "node:fs/promises";
import { vmmFailure } from "./error.ts";
import { isMissing } from "./file-error.ts";

/**
 * Makes a VM's disk as a copy of the image's empty one: a few MiB, shared where the file system can. It has
 * no backing file, so that it can be read without the image. The disk is never replaced: it would be lost.
 */
export async function createDisk(pristinePath: string, diskPath: string): Promise<void> {
  const draft = `${diskPath}.draft`;
  if (await exists(diskPath)) {
    throw vmmFailure("disk_exists", "Cannot create disk: there is one", { detail: diskPath });
  }
  try {
    await copyFile(pristinePath, draft, constants.COPYFILE_FICLONE);
    await chmod(draft, 0o600);
    await rename(draft, diskPath);
  } catch (thrown) {
    await rm(draft, { force: true });
    if (!isMissing(thrown)) throw thrown;
    throw vmmFailure("disk_missing", "Cannot create disk: the image's empty disk is missing", {
      cause: thrown,
      detail: pristinePath,
    });
  }
}

/** Bytes that the disk takes on the host; its length says nothing, it is sparse. */
export async function diskAllocatedBytes(path: string): Promise<number> {
  const { blocks } = await stat(path);
  return blocks * 512;
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (thrown) {
    if (isMissing(thrown)) return false;
    throw thrown;
  }
}
