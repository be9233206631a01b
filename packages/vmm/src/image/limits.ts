const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

/** Free bytes the cache must have before a build: image, build folder beside it, and one image to replace. */
export const CACHE_FREE_BYTES_MIN: number = 3 * GIB;

/** Free bytes of the scratch folder: unpacked root 400 MiB, its disk 400, packages 200, kernel 110, Node 150. */
export const SCRATCH_FREE_BYTES_MIN: number = 2 * GIB;

/** Available memory below which scratch files do not go into a memory file system. */
export const SCRATCH_MEMORY_BYTES_MIN: number = 4 * GIB;

/** A whole build takes about a minute; a slow mirror or a slow machine ten times that. */
export const BUILD_TIMEOUT_MS: number = 20 * 60_000;

/** Who waits for another builder asks again after this; a build takes a minute. */
export const LOCK_RETRY_MS = 250;
/** Of a lock file: a number and a line's end. */
export const PID_BYTES_MAX = 16;

/** For one step that only computes (mkfs, tar, qemu-img). */
export const STEP_TIMEOUT_MS: number = 3 * 60_000;

/** For one step that downloads. */
export const DOWNLOAD_TIMEOUT_MS: number = 10 * 60_000;

/** How long a stopped program may clean up after itself before it is killed. */
export const STOP_TIMEOUT_MS: number = 5_000;

/** How much of a program's output is kept: the head is what we parse, the tail what explains a failure. */
export const OUTPUT_BYTES_MAX: number = 8 * MIB;
export const ERROR_TAIL_BYTES_MAX: number = 16 * KIB;

/** A manifest names some 250 packages in 10 KiB. */
export const MANIFEST_BYTES_MAX: number = MIB;

/** Every file of the recipe is a page of text. */
export const RECIPE_FILE_BYTES_MAX: number = 256 * KIB;

/** The agent disk holds one bundle and one static program; more means that something went wrong. */
export const AGENT_CONTENT_BYTES_MAX: number = 7 * MIB;
export const AGENT_DISK_BYTES_MAX: number = 8 * MIB;

/** Size of the disk that every VM sees. It is part of the golden: all disks must have it. */
export const DISK_BYTES: number = 64 * GIB;
