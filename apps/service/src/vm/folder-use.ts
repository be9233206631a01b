import { lstat, opendir } from "node:fs/promises";
import { join } from "node:path";

export interface FolderUse {
  readonly allocatedBytes: number;
  /** Stops at one more than it was asked to count: whoever writes there decides how many there are. */
  readonly entries: number;
}

/** What lies below a folder. What goes away meanwhile is not counted; what is closed to us counts as too many. */
export async function folderUse(folder: string, entriesMax: number): Promise<FolderUse> {
  let [allocatedBytes, entries] = [0, 0];
  const folders = [folder];
  for (let next = folders.pop(); next !== undefined && entries <= entriesMax; next = folders.pop()) {
    const opened = await opendir(next).catch(whyNot);
    // Whoever made it may have closed it: then nobody knows what it holds.
    if (opened === "closed") entries = entriesMax + 1;
    if (opened === "gone" || opened === "closed") continue;
    // Leaving the loop closes it.
    for await (const { name } of opened) {
      const path = join(next, name);
      const found = await lstat(path).catch(whyNot);
      if (found === "gone") continue;
      entries += 1;
      if (found === "closed") entries = entriesMax + 1;
      if (found === "closed" || entries > entriesMax) break;
      allocatedBytes += found.blocks * 512;
      if (found.isDirectory()) folders.push(path);
    }
  }
  return { allocatedBytes, entries };
}

function whyNot(thrown: unknown): "gone" | "closed" {
  const code = thrown instanceof Error && "code" in thrown ? thrown.code : "";
  if (code === "ENOENT" || code === "ENOTDIR") return "gone";
  if (code === "EACCES") return "closed";
  throw thrown;
}
