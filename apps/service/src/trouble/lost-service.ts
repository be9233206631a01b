import { rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Panic } from "@capsem/api";
import type { HomeLayout } from "../home/layout.ts";
import { readRegularFile } from "../home/regular-file.ts";
import { LOG_LIMITS, TROUBLE_LIMITS } from "../limits.ts";
import { readLogWindow } from "../log/log-window.ts";
import { readPanics } from "./panic-files.ts";

/** First line of a panic that nobody was left to write. */
export const WITHOUT_A_WORD = "ended without a word (killed, or the machine stopped)";

/**
 * The previous service, where it left its pid file and did not say why: it was killed, or the machine stopped. The
 * caller holds the lock of the home, so it is not there any more. Takes the file away: it is told of once.
 */
export async function findLostService(layout: HomeLayout, nowMs: number): Promise<Panic | null> {
  const leftAt = await stat(layout.pidFile).catch(() => null);
  if (leftAt === null) return null;
  const pid = await pidIn(layout.pidFile);
  await rm(layout.pidFile, { force: true });
  const { panics } = await readPanics(layout.panics, {
    ...{ sinceMs: Math.floor(leftAt.mtimeMs), limit: LOG_LIMITS.panicsKept },
  });
  if (panics.some((each) => each.process === "service" && each.pid === pid)) return null;
  const { lines } = await readLogWindow(join(layout.logs, "service.jsonl"), { tail: 1 });
  const last = wordsOf(lines[0] ?? "");
  // Its log says that it was asked, and what kept it.
  if (last?.message === "stop was cut") return null;
  return {
    ...{ process: "service", pid, time: new Date(nowMs).toISOString() },
    message: `the previous service ${WITHOUT_A_WORD}`,
    location: lastLoggedAt(last?.time),
    frames: [],
  };
}

/** 0: none that could be read. */
export async function pidIn(path: string): Promise<number> {
  const text = await readRegularFile(path, TROUBLE_LIMITS.pidFileBytesMax).catch(() => "");
  return Number(/^[1-9][0-9]{0,9}/.exec(String(text))?.[0] ?? 0);
}

export function lastLoggedAt(time: unknown): string | null {
  return typeof time === "string" ? `its log ends at ${time}` : null;
}

export function wordsOf(line: string): { readonly time?: unknown; readonly message?: unknown } | null {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? value : null;
  } catch {
    // Cut by a full disk, or none.
    return null;
  }
}
