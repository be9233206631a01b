/** What tests compile, kept in `dist` by the hash of all that it is made of: the next file that needs it finds it. */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";

const FOLDER = join(import.meta.dirname, "../../dist/test-programs");
/** Longer than any run that may still use an older one. */
const OLD_MS = 24 * 60 * 60_000;

/** The folder NAME-HASH, which `make` filled once. Two at once both do, and either's is right. Throws as `make`. */
export function kept(name: string, hash: string, make: (folder: string) => void, within = FOLDER): string {
  const folder = join(within, `${name}-${hash}`);
  if (existsSync(folder)) return folder;
  const fresh = `${folder}.${process.pid}.tmp`;
  mkdirSync(fresh, { recursive: true });
  try {
    make(fresh);
    renameSync(fresh, folder);
  } catch (thrown) {
    rmSync(fresh, { recursive: true, force: true });
    if (!existsSync(folder)) throw thrown;
  }
  for (const entry of readdirSync(within)) {
    const path = join(within, entry);
    // Another run may just have removed it.
    const { mtimeMs } = statSync(path, { throwIfNoEntry: false }) ?? { mtimeMs: Date.now() };
    if (Date.now() - mtimeMs > OLD_MS) rmSync(path, { recursive: true, force: true });
  }
  return folder;
}
