import type { Baseline } from "./baseline.ts";
import { Folder } from "./folder.ts";
import { FolderPath } from "./folder-path.ts";
import { isUnchanged, mergeJudge } from "./merge-judge.ts";
import { atHome, type UnpackOptions, type UnpackReport, unpackTree } from "./unpack.ts";

export interface HomeReport extends UnpackReport {
  /** Removed here because the guest removed them; empty unless asked. */
  readonly deleted: readonly string[];
  /** Removed in the guest and kept here. */
  readonly kept: readonly string[];
}

/** The guest's tree against what was copied in: its changes are made in `folder`, deletions only when asked. */
export async function comeHome(
  tar: AsyncIterable<Uint8Array>,
  folder: string,
  baseline: Baseline,
  options: { readonly deletes: boolean; readonly progress?: UnpackOptions["progress"] },
): Promise<HomeReport> {
  const { progress } = options;
  const judge = mergeJudge(baseline);
  // A tree that breaks off throws here, so that what it had no time to say is never a deletion.
  const report = await unpackTree(tar, folder, { judge, ...(progress === undefined ? {} : { progress }) });
  const missing = [...baseline.keys()].filter((path) => !report.seen.has(path));
  const deleted = options.deletes ? removeUnchanged(folder, missing, baseline) : [];
  const gone = new Set(deleted);
  const { changed, conflicts, refused, seen } = report;
  return { changed, conflicts, refused, seen, deleted, kept: missing.filter((path) => !gone.has(path)) };
}

function removeUnchanged(folder: string, paths: readonly string[], baseline: Baseline): string[] {
  const root = Folder.open(folder);
  const folders = new FolderPath(root);
  const removed: string[] = [];
  try {
    // What is deeper comes first, so that a folder is empty when its turn comes.
    for (const path of [...paths].sort().reverse())
      if (removeOne(folders, path, baseline)) removed.push(path);
    return removed;
  } finally {
    folders.close();
    root.close();
  }
}

function removeOne(folders: FolderPath, path: string, baseline: Baseline): boolean {
  const names = path.split("/");
  const name = names.at(-1) ?? "";
  const base = baseline.get(path);
  try {
    const parent = folders.enter(names.slice(0, -1));
    const home = atHome(parent, name);
    if (home === null) return true;
    if (base === undefined || !isUnchanged(base, home)) return false;
    if (base.kind === "directory") parent.removeFolder(name);
    else parent.removeFile(name);
    return true;
  } catch {
    // A folder that is not empty, or one that turned into a link meanwhile, stays.
    return false;
  }
}
