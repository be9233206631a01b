/** What comes back from a guest is hostile; these bound it (design, "Traps found by trying"). */
export const TREE_LIMITS = { bytesMax: 1024 * 1024 * 1024, entriesMax: 200_000 } as const;
export interface TreeLimits {
  readonly bytesMax: number;
  readonly entriesMax: number;
}
/** PATH_MAX and NAME_MAX of Linux. */
export const PATH_BYTES_MAX = 4095;
export const NAME_BYTES_MAX = 255;
/** Extended headers hold a path and a link target; more is an attack on memory. */
export const EXTENSION_BYTES_MAX = 64 * 1024;
/** A file up to this size is judged in memory; a larger one is written beside its place first. */
export const HELD_FILE_BYTES_MAX = 4 * 1024 * 1024;
/** What leaves this host is bounded by the VM's disk, this only stops a walk that went astray. */
export const PACK_BYTES_MAX = 10 * 1024 * 1024 * 1024;
/** Parts of a packed tree: large enough that small files do not become small writes. */
export const PACK_PART_BYTES = 256 * 1024;
/** Tries to find a free NAME.capsem-guest. */
export const BESIDE_TRIES_MAX = 1000;
