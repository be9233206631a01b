import * as fs from "node:fs";
import { closeSync, openSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { Failure } from "@capsem/base";
import { HOME_LIMITS } from "../limits.ts";
import { readRegularFile } from "./regular-file.ts";

// What may wait for the disk is done elsewhere. Going there and back costs more than closing a file does.
const open = promisify(fs.open);
const writeAll = promisify(fs.writeFile);
const sync = promisify(fs.fsync);

/**
 * Replaces a file as a whole: a reader sees the old bytes or the new ones. With `durable` it also holds after
 * a loss of power. Two writers of one path must be ordered by the caller: the temporary name is fixed.
 */
export async function writeFileAtomic(path: string, text: string, durable = true): Promise<void> {
  const temporary = `${path}.tmp`;
  await writeNewFile(temporary, text, durable);
  try {
    await rename(temporary, path);
    if (durable) await syncFolder(dirname(path));
  } catch (thrown) {
    await rm(temporary, { force: true });
    throw thrown;
  }
}

/** A file of its own, in the place of whatever was there; with `durable` its bytes, not its name, are kept for good. */
export async function writeNewFile(path: string, text: string, durable: boolean): Promise<void> {
  try {
    const fd = await openNew(path);
    try {
      await writeAll(fd, text);
      if (durable) await sync(fd);
    } finally {
      closeSync(fd);
    }
  } catch (thrown) {
    await rm(path, { force: true });
    throw thrown;
  }
}

async function openNew(path: string): Promise<number> {
  try {
    return await open(path, "wx", 0o600);
  } catch (thrown) {
    if (!(thrown instanceof Error && "code" in thrown && thrown.code === "EEXIST")) throw thrown;
    // What an interrupted writer left, or somebody put there: it is never written into.
    await rm(path, { force: true });
    return open(path, "wx", 0o600);
  }
}

/** Names in it hold after a loss of power. */
export async function syncFolder(folder: string): Promise<void> {
  const fd = openSync(folder, "r");
  try {
    await sync(fd);
  } finally {
    closeSync(fd);
  }
}

/** The parsed file, or null when it does not exist. Throws Failure "file_corrupt" or "file_refused" when it is no JSON file. */
export async function readJsonFile(path: string): Promise<unknown> {
  let text: string;
  try {
    text = (await readRegularFile(path, HOME_LIMITS.jsonFileBytesMax)).toString("utf8");
  } catch (thrown) {
    if (isMissing(thrown)) return null;
    throw thrown;
  }
  try {
    return JSON.parse(text) as unknown;
  } catch (thrown) {
    throw new Failure("file_corrupt", `Cannot read "${path}": it is not JSON`, { cause: thrown });
  }
}

export function isMissing(thrown: unknown): boolean {
  return thrown instanceof Error && "code" in thrown && thrown.code === "ENOENT";
}
