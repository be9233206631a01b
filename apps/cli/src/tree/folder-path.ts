import type { Folder } from "./folder.ts";

/** The open folders from the tree's root down to the current entry's parent; entries come depth first. */
export class FolderPath {
  readonly #root: Folder;
  #names: string[] = [];
  #open: Folder[] = [];

  constructor(root: Folder) {
    this.#root = root;
  }

  /** The folder of these names, each a real directory; throws ELOOP or ENOTDIR at a link or a file. */
  enter(names: readonly string[]): Folder {
    let shared = 0;
    while (shared < names.length && shared < this.#names.length && names[shared] === this.#names[shared])
      shared += 1;
    this.#leave(shared);
    for (const name of names.slice(shared)) {
      this.#open.push((this.#open.at(-1) ?? this.#root).open(name));
      this.#names.push(name);
    }
    return this.#open.at(-1) ?? this.#root;
  }

  /** The folder of these names when it is the one that was entered last. */
  entered(names: readonly string[]): Folder | null {
    if (names.length !== this.#names.length || names.some((name, at) => name !== this.#names[at]))
      return null;
    return this.#open.at(-1) ?? this.#root;
  }

  close(): void {
    this.#leave(0);
  }

  #leave(depth: number): void {
    for (const folder of this.#open.splice(depth).reverse()) folder.close();
    this.#names = this.#names.slice(0, depth);
  }
}
