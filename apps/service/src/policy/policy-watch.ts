import { existsSync, type FSWatcher, statSync, watch } from "node:fs";
import { basename, dirname } from "node:path";
import { messageOf } from "@capsem/base";
import { POLICY_TIMES } from "../limits.ts";
import type { ServiceLog } from "../log/service-log.ts";

export interface PolicyWatchParts {
  /** The files that matter now; asked again after each change. */
  readonly files: () => readonly string[];
  /** Something may have changed. Never rejects. */
  readonly changed: () => Promise<void>;
  readonly log: ServiceLog;
}

interface Watched {
  readonly watcher: FSWatcher;
  names: ReadonlySet<string>;
  /** Another folder may come to stand at the same path. */
  readonly inode: number;
}

/**
 * Looks at the folders of files, because an editor puts a new file in the place of the old one. Where a folder is not
 * there yet, the nearest one above it is looked at. It calls after a moment of quiet, however many things happen.
 */
export class PolicyWatch {
  readonly #parts: PolicyWatchParts;
  readonly #watched = new Map<string, Watched>();
  #timer: NodeJS.Timeout | null = null;
  #isClosed = false;

  constructor(parts: PolicyWatchParts) {
    this.#parts = parts;
    this.#follow();
  }

  close(): void {
    this.#isClosed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    for (const { watcher } of this.#watched.values()) watcher.close();
    this.#watched.clear();
  }

  /** Watches what is to be watched now, and nothing else. True when a folder is new to it. */
  #follow(): boolean {
    const wanted = foldersOf(this.#parts.files());
    for (const [folder, { watcher, inode }] of this.#watched) {
      if (wanted.has(folder) && inodeOf(folder) === inode) continue;
      watcher.close();
      this.#watched.delete(folder);
    }
    let hasNew = false;
    for (const [folder, names] of wanted) {
      const known = this.#watched.get(folder);
      if (known === undefined) hasNew = this.#open(folder, names) || hasNew;
      else known.names = names;
    }
    return hasNew;
  }

  #open(folder: string, names: ReadonlySet<string>): boolean {
    try {
      const watcher = watch(folder, { persistent: false });
      const entry: Watched = { watcher, names, inode: inodeOf(folder) };
      this.#watched.set(folder, entry);
      watcher.on("change", (_kind, name) => {
        // A folder that goes names itself.
        const isOurs = name === null || entry.names.has(String(name)) || String(name) === basename(folder);
        if (isOurs) this.#soon();
      });
      watcher.on("error", (thrown) => {
        this.#parts.log("warning", "cannot watch settings", { folder, cause: messageOf(thrown) });
        watcher.close();
        if (this.#watched.get(folder) === entry) this.#watched.delete(folder);
      });
      return true;
    } catch (thrown) {
      // The machine may have no watches left: a reload by hand still works.
      this.#parts.log("warning", "cannot watch settings", { folder, cause: messageOf(thrown) });
      return false;
    }
  }

  #soon(): void {
    if (this.#isClosed) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#parts.changed().then(() => {
        // What happened in a folder before it was watched was not seen.
        if (!this.#isClosed && this.#follow()) this.#soon();
      });
    }, POLICY_TIMES.watchQuietMs);
    this.#timer.unref();
  }
}

/** Folders that are there, each with the names in it that matter. */
function foldersOf(files: readonly string[]): Map<string, Set<string>> {
  const folders = new Map<string, Set<string>>();
  for (const file of files) {
    let path = file;
    while (dirname(path) !== path && !existsSync(dirname(path))) path = dirname(path);
    const names = folders.get(dirname(path)) ?? new Set();
    folders.set(dirname(path), names.add(basename(path)));
  }
  return folders;
}

function inodeOf(folder: string): number {
  return statSync(folder, { throwIfNoEntry: false })?.ino ?? 0;
}
