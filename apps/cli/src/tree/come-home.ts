import type { Baseline } from "./baseline.ts";
import { Folder } from "./folder.ts";
import { FolderPath } from "./folder-path.ts";
import { isUnchanged, mergeJudge } from "./merge-judge.ts";
import type { TreeEntry } from "./tree-entry.ts";
import { atHome, placeEntries, type UnpackOptions, type UnpackReport } from "./unpack.ts";

export interface HomeReport extends UnpackReport {
  /** Removed here because the guest removed them; empty unless asked. */
  readonly deleted: readonly string[];
  /** Removed in the guest and kept here. */
  readonly kept: readonly string[];
}

/** The guest's tree against what was copied in: its changes are made in `folder`, deletions only when asked. */
export async function comeHome(
  entries: AsyncIterable<TreeEntry>,
  folder: string,
  baseline: Baseline,
  options: { readonly deletes: boolean; readonly progress?: UnpackOptions["progress"] },
): Promise<HomeReport> {
  const { progress } = options;
  const judge = mergeJudge(baseline);
  // A tree that breaks off throws here, so that what it had no time to say is never a deletion.
  const report = await placeEntries(entries, folder, {
    judge,
    ...(progress === undefined ? {} : { progress }),
  });
  const refused = new Set(report.refused.map(({ path }) => path));
  const missing = [...baseline.keys()].filter((path) => !report.seen.has(path) && !isBelow(path, refused));
  const deleted = options.deletes ? removeUnchanged(folder, missing, baseline) : [];
  const gone = new Set(deleted);
  const { changed, conflicts, seen } = report;
  return {
    changed,
    conflicts,
    refused: report.refused,
    seen,
    deleted,
    kept: missing.filter((path) => !gone.has(path)),
  };
}

/** What is in a folder that was not given says nothing of itself: it may be there. */
function isBelow(path: string, folders: ReadonlySet<string>): boolean {
  for (let at = path.lastIndexOf("/"); at > 0; at = path.lastIndexOf("/", at - 1))
    if (folders.has(path.slice(0, at))) return true;
  return false;
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
