import { chmod, mkdir, mkdtemp, readdir, readFile, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { toolEnv } from "./build-context.ts";
import { imageFailure } from "./error.ts";
import {
  CACHE_FREE_BYTES_MIN,
  SCRATCH_FREE_BYTES_MIN,
  SCRATCH_MEMORY_BYTES_MIN,
  STEP_TIMEOUT_MS,
} from "./limits.ts";
import type { ImagePowers } from "./powers.ts";

const MEMORY_ROOT = "/dev/shm";
const DISK_ROOTS = ["/var/tmp", "/tmp"] as const;

export async function checkCacheSpace(cacheDir: string): Promise<void> {
  const free = await freeBytes(cacheDir);
  if (free >= CACHE_FREE_BYTES_MIN) return;
  throw imageFailure(
    "image_no_space",
    `Cannot build the image: ${mib(free)} MiB free in '${cacheDir}', ${mib(CACHE_FREE_BYTES_MIN)} MiB are needed`,
  );
}

/**
 * Chooses where to unpack: memory where there is plenty (a third faster), else a disk. Packages' own programs
 * run there, so a file system mounted `noexec` or `nodev` will not do.
 */
export async function chooseScratchRoot(env: ImagePowers["env"]): Promise<string> {
  const mounts = await readFile("/proc/self/mounts", "utf8");
  const candidates = [
    ...((await availableMemoryBytes()) >= SCRATCH_MEMORY_BYTES_MIN ? [MEMORY_ROOT] : []),
    ...(env.TMPDIR === undefined ? [] : [env.TMPDIR]),
    ...DISK_ROOTS,
  ];
  for (const root of candidates) {
    const free = await freeBytes(root).catch(() => 0);
    if (free >= SCRATCH_FREE_BYTES_MIN && !isRestricted(mounts, root)) return root;
  }
  throw imageFailure(
    "image_no_space",
    `Cannot build the image: none of ${candidates.join(", ")} has ${mib(SCRATCH_FREE_BYTES_MIN)} MiB free`,
  );
}

/** Whether a folder's mount forbids programs or device files. `mounts` is the text of /proc/self/mounts. */
export function isRestricted(mounts: string, path: string): boolean {
  let longest = "";
  let options: string[] = [];
  for (const line of mounts.split("\n")) {
    const [, point = "", , flags = ""] = line.split(" ");
    const covers = point === "/" || path === point || path.startsWith(`${point}/`);
    // Of two mounts on the same point the later one is seen.
    if (point !== "" && covers && point.length >= longest.length) {
      longest = point;
      options = flags.split(",");
    }
  }
  return options.includes("noexec") || options.includes("nodev");
}

/** A folder that only we can list, with `out` in it that the user namespace of the build may write. */
export async function makeScratch(root: string, lockName: string): Promise<{ dir: string; outDir: string }> {
  const dir = await mkdtemp(join(root, `${prefixOf(lockName)}`));
  await chmod(dir, 0o711);
  const outDir = join(dir, "out");
  await mkdir(outDir);
  await chmod(outDir, 0o777);
  return { dir, outDir };
}

/** Only under the build lock. Finds what a killed builder of the same cache left, in any place it may have used. */
export async function removeStaleScratch(
  powers: ImagePowers,
  lockName: string,
  roots: readonly string[] = [MEMORY_ROOT, ...DISK_ROOTS],
): Promise<void> {
  for (const root of new Set([...roots, ...(powers.env.TMPDIR === undefined ? [] : [powers.env.TMPDIR])])) {
    const names = await readdir(root).catch((): string[] => []);
    for (const name of names) {
      if (name.startsWith(prefixOf(lockName))) await removeScratch(powers, join(root, name));
    }
  }
}

/** Removes a scratch folder, also what belongs to the mapped users of a build in a user namespace. */
export async function removeScratch(powers: ImagePowers, dir: string): Promise<void> {
  try {
    await rm(dir, { recursive: true, force: true });
  } catch (cause) {
    if (powers.userId === 0) throw cause;
    await powers.run({
      program: "mmdebstrap",
      args: ["--unshare-helper", "find", dir, "-mindepth", "1", "-delete"],
      env: toolEnv(powers.env),
      timeoutMs: STEP_TIMEOUT_MS,
    });
    await rm(dir, { recursive: true, force: true });
  }
}

function prefixOf(lockName: string): string {
  return `capsem-image-${lockName}-`;
}

async function availableMemoryBytes(): Promise<number> {
  const text = await readFile("/proc/meminfo", "utf8");
  return Number(/^MemAvailable:\s+(\d+) kB$/m.exec(text)?.[1] ?? 0) * 1024;
}

async function freeBytes(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
}

function mib(bytes: number): number {
  return Math.floor(bytes / (1024 * 1024));
}
