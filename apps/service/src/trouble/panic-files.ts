import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { type Panic, panic } from "@capsem/api";
import { isMissing } from "../home/atomic-file.ts";
import { readRegularFile } from "../home/regular-file.ts";
import { LOG_LIMITS, TROUBLE_LIMITS } from "../limits.ts";

export interface PanicRequest {
  /** Only those at or after this time; null: all that are kept. */
  readonly sinceMs: number | null;
  readonly limit: number;
  /** Aborts when nobody waits for the answer. */
  readonly signal?: AbortSignal | undefined;
}

export interface FoundPanics {
  /** The newest first. */
  readonly panics: Panic[];
  readonly truncated: boolean;
}

/** Reads logs/panics. A file that is none of ours, or cut by a full disk, is passed over: nothing here can fail for it. */
export async function readPanics(folder: string, { sinceMs, limit }: PanicRequest): Promise<FoundPanics> {
  const names = await readdir(folder).catch((thrown: unknown) => {
    if (isMissing(thrown)) return [];
    throw thrown;
  });
  // Their names begin with their time. More than are kept may lie there for a moment, never many.
  const latest = names
    .filter((name) => name.endsWith(".json"))
    .sort()
    .reverse();
  const found: Panic[] = [];
  for (const name of latest.slice(0, 2 * LOG_LIMITS.panicsKept)) {
    const read = await readPanic(join(folder, name));
    if (read === null || (sinceMs !== null && Date.parse(read.time) < sinceMs)) continue;
    if (found.length >= limit) return { panics: found, truncated: true };
    found.push(read);
  }
  return { panics: found, truncated: false };
}

async function readPanic(path: string): Promise<Panic | null> {
  try {
    const bytes = await readRegularFile(path, TROUBLE_LIMITS.panicFileBytesMax);
    const parsed = panic.safeParse(JSON.parse(bytes.toString("utf8")));
    return parsed.success && Number.isFinite(Date.parse(parsed.data.time)) ? parsed.data : null;
  } catch {
    // Gone meanwhile, no file, or no JSON: no panic that could be shown.
    return null;
  }
}
