import { randomBytes } from "node:crypto";
import { mkdir, readdir, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { assert } from "@capsem/base";
import { vmmFailure } from "./error.ts";
import { isFileError, isMissing } from "./file-error.ts";
import { GOLDEN_KEY_PATTERN, type GoldenIdentity } from "./golden-key.ts";
import { describeGolden, GOLDEN_FILE, isGoldenWhole, syncPath } from "./golden-manifest.ts";
import { DRAFT_AGE_MS_MAX } from "./limits.ts";

export interface Golden {
  key: string;
  folder: string;
  ramPath: string;
  statePath: string;
}

/** A golden that is being made. It counts once `commit` resolved; `abort` and a crash leave nothing that counts. */
export interface GoldenDraft {
  key: string;
  folder: string;
  ramPath: string;
  statePath: string;
  commit(identity: GoldenIdentity): Promise<Golden>;
  abort(): Promise<void>;
}

export interface GoldenLimits {
  /** These stay, whatever the limits say. */
  keepKeys: readonly string[];
  countMax: number;
  /** Allocated bytes; a golden's memory is sparse. */
  bytesMax: number;
}

export interface GoldenStore {
  /** The golden of that key, checked, and marked as used; null when there is none that is whole. */
  find(key: string): Promise<Golden | null>;
  draft(key: string): Promise<GoldenDraft>;
  /** Removes broken goldens, abandoned drafts, and the least recently used ones above the limits. */
  collect(limits: GoldenLimits): Promise<{ removed: string[] }>;
}

export interface GoldenStorePowers {
  pid: number;
  nowMs(): number;
  isAlive(pid: number): boolean;
}

/** `draft-<key>-<pid>-<random>`: its maker may be another service that shares the folder. */
const DRAFT_PATTERN = /^draft-[0-9a-f]{32}-(\d{1,10})-[0-9a-f]{16}$/;

/** The folder is made when it is first written to. Several services may share it. */
export function openGoldenStore(root: string, powers: GoldenStorePowers): GoldenStore {
  const folderOf = (key: string) => {
    assert(GOLDEN_KEY_PATTERN.test(key), "bad golden key");
    return join(root, key);
  };
  return {
    async find(key) {
      const folder = folderOf(key);
      if (!(await isGoldenWhole(folder, key))) return null;
      await touch(join(folder, GOLDEN_FILE.used), powers.nowMs());
      return { key, ...pathsIn(folder) };
    },
    async draft(key) {
      const target = folderOf(key);
      await mkdir(root, { recursive: true, mode: 0o700 });
      const folder = join(root, `draft-${key}-${powers.pid}-${randomBytes(8).toString("hex")}`);
      await mkdir(folder, { mode: 0o700 });
      return {
        key,
        ...pathsIn(folder),
        commit: (identity) => commit(root, folder, target, key, identity),
        abort: () => rm(folder, { recursive: true, force: true }),
      };
    },
    collect: (limits) => collect(root, limits, powers),
  };
}

function pathsIn(folder: string): Pick<Golden, "folder" | "ramPath" | "statePath"> {
  return { folder, ramPath: join(folder, GOLDEN_FILE.ram), statePath: join(folder, GOLDEN_FILE.state) };
}

async function commit(
  root: string,
  folder: string,
  target: string,
  key: string,
  identity: GoldenIdentity,
): Promise<Golden> {
  try {
    const manifest = await describeGolden(folder, key, identity);
    await writeFile(join(folder, GOLDEN_FILE.manifest), `${JSON.stringify(manifest, null, 2)}\n`, {
      mode: 0o600,
    });
    await writeFile(join(folder, GOLDEN_FILE.used), "", { mode: 0o600 });
    for (const name of [GOLDEN_FILE.ram, GOLDEN_FILE.state, GOLDEN_FILE.manifest]) {
      await syncPath(join(folder, name));
    }
    await writeFile(join(folder, GOLDEN_FILE.marker), "", { mode: 0o600 });
    await syncPath(folder);
    if (!(await isGoldenWhole(folder, key))) {
      throw vmmFailure("checkpoint_corrupt", "Cannot keep a golden: its memory or state is not whole");
    }
    await replace(folder, target);
    await syncPath(root);
  } catch (thrown) {
    await rm(folder, { recursive: true, force: true });
    throw thrown;
  }
  return { key, ...pathsIn(target) };
}

/** An older golden of the key is moved away first: a folder that is not empty cannot be replaced at once. */
async function replace(folder: string, target: string): Promise<void> {
  const old = `${folder}-old`;
  try {
    await rename(target, old);
  } catch (thrown) {
    if (!isMissing(thrown)) throw thrown;
  }
  await rename(folder, target);
  await rm(old, { recursive: true, force: true });
}

async function collect(
  root: string,
  limits: GoldenLimits,
  powers: GoldenStorePowers,
): Promise<{ removed: string[] }> {
  const removed: string[] = [];
  const remove = async (name: string) => {
    await rm(join(root, name), { recursive: true, force: true });
    removed.push(name);
  };
  const goldens: { key: string; usedMs: number; bytes: number }[] = [];
  for (const name of await namesIn(root)) {
    if (!GOLDEN_KEY_PATTERN.test(name)) {
      if (await isAbandoned(root, name, powers)) await remove(name);
    } else if (await isGoldenWhole(join(root, name), name)) {
      goldens.push({ key: name, ...(await usageOf(join(root, name))) });
    } else await remove(name);
  }
  const kept = (key: string) => limits.keepKeys.includes(key);
  // The kept ones count first, then the latest used: what no longer fits goes.
  goldens.sort((a, b) => Number(kept(b.key)) - Number(kept(a.key)) || b.usedMs - a.usedMs);
  let count = 0;
  let bytes = 0;
  for (const golden of goldens) {
    count += 1;
    bytes += golden.bytes;
    if (kept(golden.key) || (count <= limits.countMax && bytes <= limits.bytesMax)) continue;
    count -= 1;
    bytes -= golden.bytes;
    await remove(golden.key);
  }
  return { removed };
}

async function namesIn(root: string): Promise<string[]> {
  try {
    return (await readdir(root)).sort();
  } catch (thrown) {
    if (isMissing(thrown)) return [];
    throw thrown;
  }
}

/** Drafts alone: what else may lie in the folder is not ours to remove. */
async function isAbandoned(root: string, name: string, powers: GoldenStorePowers): Promise<boolean> {
  const match = DRAFT_PATTERN.exec(name.replace(/-old$/, ""));
  if (match === null) return false;
  if (!powers.isAlive(Number(match[1]))) return true;
  const facts = await stat(join(root, name)).catch((thrown: unknown) => {
    if (isMissing(thrown)) return null;
    throw thrown;
  });
  return facts !== null && powers.nowMs() - facts.mtimeMs > DRAFT_AGE_MS_MAX;
}

/** Another service may remove what we look at: what is gone takes nothing and was never used. */
async function usageOf(folder: string): Promise<{ usedMs: number; bytes: number }> {
  const facts = async (name: string) => {
    try {
      return await stat(join(folder, name));
    } catch (thrown) {
      if (isFileError(thrown)) return { blocks: 0, mtimeMs: 0 };
      throw thrown;
    }
  };
  const [ram, state, used] = await Promise.all(
    [GOLDEN_FILE.ram, GOLDEN_FILE.state, GOLDEN_FILE.used].map(facts),
  );
  return { usedMs: used?.mtimeMs ?? 0, bytes: ((ram?.blocks ?? 0) + (state?.blocks ?? 0)) * 512 };
}

async function touch(path: string, nowMs: number): Promise<void> {
  await writeFile(path, "", { flag: "a", mode: 0o600 });
  await utimes(path, nowMs / 1000, nowMs / 1000);
}
