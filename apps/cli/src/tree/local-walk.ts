import { lstatSync, readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { Failure, messageOf } from "@capsem/base";
import { PACK_BYTES_MAX, TREE_LIMITS } from "./limits.ts";
import { isExactText } from "./safe-path.ts";

/** Something in a folder of ours that can be copied into a VM. */
export type LocalEntry = {
  /** Relative to the folder, parts joined with "/". */
  readonly path: string;
  /** Where it is. */
  readonly local: string;
  readonly mode: number;
  readonly mtimeMs: number;
} & ({ readonly kind: "directory" | "file" } | { readonly kind: "symlink"; readonly target: string });

export interface WalkOptions {
  /** For what cannot be copied: sockets, pipes, devices, unreadable files. */
  readonly warn: (text: string) => void;
  readonly progress?: (entries: number, bytes: number) => void;
  /** Folders that are not entered; whoever takes the entries may add one while it is the last that was given. */
  readonly closed?: ReadonlySet<string>;
}

/** How much of a folder was met: what leaves this host has a limit. */
export class WalkCount {
  entries = 0;
  bytes = 0;

  add(entries: number, bytes: number): void {
    this.entries += entries;
    this.bytes += bytes;
    if (this.entries > TREE_LIMITS.entriesMax || this.bytes > PACK_BYTES_MAX)
      throw new Failure(
        "too_large",
        `Cannot copy folder: it is over ${TREE_LIMITS.entriesMax} entries or ${PACK_BYTES_MAX} bytes`,
      );
  }
}

/** A folder's entries by name, each folder before what is in it. No link is followed. */
export function* walkFolder(
  folder: string,
  options: WalkOptions,
  count: WalkCount,
  prefix = "",
): Generator<LocalEntry> {
  for (const name of readdirSync(folder).sort()) {
    const path = prefix === "" ? name : `${prefix}/${name}`;
    const local = join(folder, name);
    if (!isExactText(name)) {
      options.warn(`skipped ${JSON.stringify(path)}: its name is not UTF-8`);
      continue;
    }
    count.add(1, 0);
    options.progress?.(count.entries, count.bytes);
    try {
      const stat = lstatSync(local);
      const { mtimeMs } = stat;
      const mode = stat.mode & 0o777;
      if (stat.isDirectory()) {
        yield { kind: "directory", path, local, mode, mtimeMs };
        if (options.closed?.has(path) !== true) yield* walkFolder(local, options, count, path);
      } else if (stat.isSymbolicLink()) {
        yield { kind: "symlink", path, local, mode, mtimeMs, target: readlinkSync(local) };
      } else if (stat.isFile()) yield { kind: "file", path, local, mode, mtimeMs };
      else options.warn(`skipped ${JSON.stringify(path)}: it is not a file, folder or link`);
    } catch (thrown) {
      if (thrown instanceof Failure) throw thrown;
      options.warn(`skipped ${JSON.stringify(path)}: ${messageOf(thrown)}`);
    }
  }
}
