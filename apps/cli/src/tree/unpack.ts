import { Failure } from "@capsem/base";
import { systemReason } from "../system-words.ts";
import { hashOfFile, receiveFile } from "./arriving-file.ts";
import { Folder } from "./folder.ts";
import { FolderPath } from "./folder-path.ts";
import type { Arrival, AtHome, Judge } from "./judge.ts";
import { BESIDE_TRIES_MAX } from "./limits.ts";
import { isExactText, parsePath, staysInside } from "./safe-path.ts";
import { broken } from "./tar-header.ts";
import { readTar, type TarEntry } from "./tar-reader.ts";
import { CHANGED_MEANWHILE, type TreeEntry } from "./tree-entry.ts";

export interface UnpackReport {
  /** Paths made, replaced or given another mode. */
  readonly changed: string[];
  /** Kept at home; the guest's is at `beside`. */
  readonly conflicts: { readonly path: string; readonly beside: string }[];
  /** Not made here, with the reason. */
  readonly refused: { readonly path: string; readonly reason: string }[];
  /** Every path of the archive, whatever became of it. */
  readonly seen: ReadonlySet<string>;
}

export interface UnpackOptions {
  readonly judge: Judge;
  readonly progress?: (entries: number, bytes: number) => void;
}

/**
 * Unpacks a hostile tar stream into an existing folder. Only files, folders and links are made; nothing is ever
 * written through a link, neither one that was there nor one that the archive brought; permission bits alone are
 * taken over. A tree that no honest sender makes fails as a whole, what was placed before it stays.
 */
export async function unpackTree(
  tar: AsyncIterable<Uint8Array>,
  folder: string,
  options: UnpackOptions,
): Promise<UnpackReport> {
  return await placeEntries(readTar(tar), folder, options);
}

/** The same for entries that come one by one, as hostile as those of an archive. */
export async function placeEntries(
  entries: AsyncIterable<TreeEntry>,
  folder: string,
  options: UnpackOptions,
): Promise<UnpackReport> {
  const root = Folder.open(folder);
  const unpacker = new Unpacker(root, options);
  try {
    for await (const entry of entries) await unpacker.take(entry);
    unpacker.finish();
    return unpacker;
  } finally {
    unpacker.close();
    root.close();
  }
}

/** The parent of an entry at home: `blocked` when a link or file has the name of a folder on the way. */
interface Place {
  readonly home: readonly string[];
  readonly nearest: Folder;
  readonly state: "there" | "missing" | "blocked";
}

class Unpacker implements UnpackReport {
  readonly #changed = new Set<string>();
  readonly conflicts: { path: string; beside: string }[] = [];
  readonly refused: { path: string; reason: string }[] = [];
  readonly seen = new Set<string>();
  readonly #kinds = new Map<string, Arrival["kind"] | "other">();
  /** Where a folder of the archive stands at home, when it could not have its own name. */
  readonly #elsewhere = new Map<string, string[]>();
  readonly #folderModes = new Map<string, { names: string[]; mode: number }>();
  readonly #folders: FolderPath;
  readonly #options: UnpackOptions;
  #bytes = 0;

  constructor(root: Folder, options: UnpackOptions) {
    this.#folders = new FolderPath(root);
    this.#options = options;
  }

  get changed(): string[] {
    return [...this.#changed];
  }

  async take(entry: TreeEntry): Promise<void> {
    const names = parsePath(entry.path);
    const name = names.at(-1);
    if (name === undefined) return;
    const path = names.join("/");
    if (entry.kind === "absent") {
      this.#remember(path, names, "other");
      if (entry.reason !== null) this.#refuse(path, entry.reason);
      return;
    }
    this.#remember(path, names, entry.kind);
    this.#bytes += entry.size;
    this.#options.progress?.(this.seen.size, this.#bytes);
    const wrong =
      entry.kind === "other"
        ? "it is not a file, folder or link"
        : isExactText(path) && isExactText(entry.target)
          ? null
          : "its name is not UTF-8";
    if (wrong !== null) {
      this.#refuse(path, wrong);
      return;
    }
    try {
      const place = this.#locate(names.slice(0, -1));
      if (entry.kind === "file") await this.#takeFile(place, names, entry);
      else this.#takeNode(place, names, entry, arrivalOf(path, entry, ""));
    } catch (thrown) {
      if (thrown instanceof Failure && thrown.kind !== CHANGED_MEANWHILE) throw thrown;
      this.#refuse(path, systemReason(thrown));
    }
  }

  /** Modes of folders come last, so that one without write permission can be filled first. */
  finish(): void {
    for (const [path, { names, mode }] of [...this.#folderModes].reverse()) {
      const parent = this.#folders.enter(names.slice(0, -1));
      const name = names.at(-1) ?? "";
      if (parent.stat(name)?.isDirectory() !== true) continue;
      parent.setMode(name, mode);
      this.#changed.add(path);
    }
  }

  close(): void {
    this.#folders.close();
  }

  /** An archive that names a path twice, or puts something below what is no folder, is an attack. */
  #remember(path: string, names: readonly string[], kind: Arrival["kind"] | "other"): void {
    const shown = JSON.stringify(path.slice(0, 80));
    if (this.#kinds.has(path)) throw broken(`path ${shown} is there twice`);
    let above = "";
    for (const name of names.slice(0, -1)) {
      above = above === "" ? name : `${above}/${name}`;
      const known = this.#kinds.get(above);
      if (known !== undefined && known !== "directory") throw broken(`path ${shown} goes through a ${known}`);
      // A folder without an entry of its own may not become something else later.
      if (known === undefined) this.#kinds.set(above, "directory");
    }
    this.#kinds.set(path, kind);
    this.seen.add(path);
  }

  /** Down to the parent as far as there are real folders at home; nothing is made yet. */
  #locate(names: readonly string[]): Place {
    const home = this.#homeOf(names);
    const entered = this.#folders.entered(home);
    if (entered !== null) return { home, nearest: entered, state: "there" };
    for (let depth = 0; depth < home.length; depth += 1) {
      const folder = this.#folders.enter(home.slice(0, depth));
      const stat = folder.stat(home[depth] ?? "");
      if (stat?.isDirectory() === true) continue;
      return { home, nearest: folder, state: stat === null ? "missing" : "blocked" };
    }
    return { home, nearest: this.#folders.enter(home), state: "there" };
  }

  #makeParents(home: readonly string[]): Folder {
    const entered = this.#folders.entered(home);
    if (entered !== null) return entered;
    let folder = this.#folders.enter([]);
    for (const [depth, name] of home.entries()) {
      if (folder.stat(name) === null) folder.makeFolder(name, 0o755);
      folder = this.#folders.enter(home.slice(0, depth + 1));
    }
    return folder;
  }

  async #takeFile(place: Place, names: readonly string[], entry: TarEntry): Promise<void> {
    const file = await receiveFile(place.nearest, entry);
    try {
      const arrival = arrivalOf(names.join("/"), entry, file.sha256);
      this.#act(place, names, arrival, (folder, name) => file.place(folder, name));
    } finally {
      file.drop();
    }
  }

  #takeNode(place: Place, names: readonly string[], entry: TarEntry, arrival: Arrival): void {
    if (arrival.kind === "symlink") {
      this.#act(place, names, arrival, (folder, name) => folder.makeLink(name, entry.target));
      return;
    }
    this.#act(place, names, arrival, (folder, name) => {
      folder.makeFolder(name, 0o700);
      const home = [...place.home, name];
      this.#folderModes.set(arrival.path, { names: home, mode: entry.mode });
      if (name !== names.at(-1)) this.#elsewhere.set(arrival.path, home);
    });
  }

  #homeOf(names: readonly string[]): string[] {
    let path = "";
    let home: string[] = [];
    for (const name of names) {
      path = path === "" ? name : `${path}/${name}`;
      home = this.#elsewhere.get(path) ?? [...home, name];
    }
    return home;
  }

  #act(
    place: Place,
    names: readonly string[],
    arrival: Arrival,
    make: (folder: Folder, name: string) => void,
  ): void {
    const name = names.at(-1) ?? "";
    const home = place.state === "there" ? atHome(place.nearest, name) : null;
    const wanted = this.#options.judge.judge(arrival, home);
    if (wanted === "keep") return;
    const reason = reasonToRefuse(place, names, arrival);
    if (reason !== null) {
      this.#refuse(arrival.path, reason);
      return;
    }
    if (wanted === "place" && home !== null && isSpecial(home)) {
      this.#refuse(arrival.path, "a pipe, socket or device is in its place here");
      return;
    }
    if (wanted === "mode") {
      this.#setMode(place, name, arrival);
      return;
    }
    const folder = this.#makeParents(place.home);
    const folderInTheWay = home?.stat.isDirectory() === true && arrival.kind !== "directory";
    if (wanted === "beside" || folderInTheWay) {
      const beside = freeName(folder, name);
      make(folder, beside);
      this.conflicts.push({ path: arrival.path, beside: [...place.home, beside].join("/") });
      return;
    }
    // rename replaces files and links by itself; only a folder needs its place empty.
    if (home !== null && arrival.kind === "directory") folder.removeFile(name);
    make(folder, name);
    this.#changed.add(arrival.path);
  }

  #setMode(place: Place, name: string, arrival: Arrival): void {
    if (arrival.kind === "directory") {
      this.#folderModes.set(arrival.path, { names: [...place.home, name], mode: arrival.mode });
      return;
    }
    place.nearest.setMode(name, arrival.mode);
    this.#changed.add(arrival.path);
  }

  #refuse(path: string, reason: string): void {
    this.refused.push({ path, reason });
  }
}

function arrivalOf(path: string, entry: TarEntry, sha256: string): Arrival {
  const kind = entry.kind === "other" ? "file" : entry.kind;
  return { path, kind, mode: entry.mode, size: entry.size, target: entry.target, sha256 };
}

export function atHome(parent: Folder, name: string): AtHome | null {
  const stat = parent.stat(name);
  if (stat === null) return null;
  return { stat, sha256: () => hashOfFile(parent, name), target: () => parent.readLink(name) };
}

/** Somebody reads or serves it: it is no copy that a newer one may replace. */
function isSpecial({ stat }: AtHome): boolean {
  return !stat.isFile() && !stat.isDirectory() && !stat.isSymbolicLink();
}

function reasonToRefuse(place: Place, names: readonly string[], arrival: Arrival): string | null {
  if (place.state === "blocked") return "a link or file is in the way here";
  if (arrival.kind !== "symlink" || staysInside(names, arrival.target)) return null;
  return `its target ${JSON.stringify(arrival.target.slice(0, 80))} is outside the tree`;
}

function freeName(parent: Folder, name: string): string {
  for (let count = 1; count <= BESIDE_TRIES_MAX; count += 1) {
    const beside = count === 1 ? `${name}.capsem-guest` : `${name}.capsem-guest-${count}`;
    if (parent.stat(beside) === null) return beside;
  }
  throw new Failure("file_exists", `Cannot keep both ${JSON.stringify(name)}: no name beside it is free`);
}
