import { chmod, lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import { checkFoldersAbove } from "@capsem/base/own-folder";
import { isMissing } from "./atomic-file.ts";
import type { HomeLayout } from "./layout.ts";

const BY_GROUP = 0o020;
const BY_OTHERS = 0o002;

/** What a VM is made of, below the cache, and how deep it lies. */
const PARTS: readonly (readonly [string, number])[] = [
  ["images", 2],
  ["goldens", 2],
  ["agents", 2],
  ["accelerator.json", 0],
];

/**
 * Refuses a cache that another user but root could have written: whoever chooses kernel, image or saved memory is in
 * every VM. It may be another machine's or root's and read-only for us. What is ours and open to our group alone, by a
 * loose umask, is closed. Throws Failure("cache_unsafe").
 */
export async function checkCache(
  { home, cache }: Pick<HomeLayout, "home" | "cache">,
  uid: number,
): Promise<void> {
  if (cache !== home) {
    checkFoldersAbove(cache);
    await check(cache, uid, 0);
  }
  for (const [name, depth] of PARTS) await check(join(cache, name), uid, depth);
}

async function check(path: string, uid: number, depth: number): Promise<void> {
  const found = await lstat(path).catch(unusable);
  if (found === null) return;
  if (found.uid !== uid && found.uid !== 0) {
    throw unsafe(path, `it belongs to user ${found.uid}, and we are user ${uid}`);
  }
  // Whoever may write the folder around it may replace it; the bits of a link itself mean nothing.
  if (found.isSymbolicLink()) return;
  if ((found.mode & BY_OTHERS) !== 0) throw unsafe(path, "everybody may write it");
  if ((found.mode & BY_GROUP) !== 0) {
    if (found.uid !== uid) throw unsafe(path, "its group may write it");
    await chmod(path, found.mode & 0o7777 & ~BY_GROUP);
  }
  if (!found.isDirectory() || depth === 0) return;
  const names = (await readdir(path).catch(unusable)) ?? [];
  for (const name of names) await check(join(path, name), uid, depth - 1);
}

/** Not made yet, collected meanwhile, or closed to us in a cache of root's: nothing of it can come into a VM. */
function unusable(thrown: unknown): null {
  if (isMissing(thrown) || (thrown instanceof Error && "code" in thrown && thrown.code === "EACCES"))
    return null;
  throw thrown;
}

function unsafe(path: string, state: string): Failure {
  const remedy = "remove it, so that it is made again, or set CAPSEM_CACHE to another folder";
  return new Failure("cache_unsafe", `Cannot use the cache at ${JSON.stringify(path)}: ${state}; ${remedy}`);
}
