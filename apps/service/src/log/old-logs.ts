import { readdir, rm, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { LOG_LIMITS } from "../limits.ts";

export interface OldLogsParts {
  readonly layout: HomeLayout;
  readonly nowMs: () => number;
  readonly monotonicMs: () => number;
  /** Ids of all VMs, and whether somebody may be writing this one's logs. */
  readonly vmIds: () => readonly string[];
  readonly isWriting: (id: string) => boolean;
}

/**
 * Removes logs and panics that nobody wrote for longer than they are kept. A round goes over everything, a few
 * folders a pass; a new one begins a while after the last ended.
 */
export class OldLogs {
  readonly #parts: OldLogsParts;
  /** What is left of this round. */
  #folders: string[] = [];
  #nextRoundMs = Number.NEGATIVE_INFINITY;

  constructor(parts: OldLogsParts) {
    this.#parts = parts;
  }

  async pass(): Promise<void> {
    const { layout, monotonicMs, vmIds } = this.#parts;
    if (this.#folders.length === 0) {
      if (monotonicMs() < this.#nextRoundMs) return;
      this.#nextRoundMs = monotonicMs() + LOG_LIMITS.roundIntervalMs;
      this.#folders = [layout.logs, layout.panics, ...vmIds().map((id) => vmFolder(layout, id).logs)];
    }
    for (const folder of this.#folders.splice(0, LOG_LIMITS.foldersAPass)) await this.#clean(folder);
  }

  async #clean(folder: string): Promise<void> {
    const names = await readdir(folder).catch(() => []);
    for (const name of names.slice(0, LOG_LIMITS.filesAFolder)) {
      if (!this.#mayGo(folder, name)) continue;
      const path = join(folder, name);
      // Rotated or removed meanwhile: the next round sees what there is then.
      const found = await stat(path).catch(() => null);
      if (found?.isFile() !== true) continue;
      if (this.#parts.nowMs() - found.mtimeMs > LOG_LIMITS.keptMs) await rm(path, { force: true });
    }
  }

  /** A file that a process holds open must keep its name: its next lines would be lost. */
  #mayGo(folder: string, name: string): boolean {
    const { layout, isWriting } = this.#parts;
    if (folder === layout.panics) return name.endsWith(".json");
    if (!/\.(jsonl|log)(\.[0-9]+)?$/.test(name)) return false;
    if (/\.[0-9]+$/.test(name)) return true;
    return folder !== layout.logs && !isWriting(basename(join(folder, "..")));
  }
}
