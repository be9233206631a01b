import { join } from "node:path";
import { LOG_LIMITS } from "../limits.ts";
import { type LogWindow, type ReadBudget, readLogWindow, type WindowRequest } from "./log-window.ts";
import { VM_LOG_FILES, type VmLogSource } from "./vm-logs.ts";

/** The machine's start, then its agent, then who ran it: the order in which a start goes wrong. */
const SOURCES: readonly VmLogSource[] = ["console", "guest", "owner"];

/**
 * The last lines of all of a VM's logs in one window, each after its source's name. Only the owner's lines have a time
 * of this machine, so that sources follow one another. They take turns at the window: a talkative one leaves the others
 * their last lines, and a short one leaves its share.
 */
export async function readAllLogs(
  folder: string,
  request: WindowRequest,
  budget?: ReadBudget,
): Promise<LogWindow> {
  const bytesMax = Math.min(request.maxBytes ?? LOG_LIMITS.windowBytesDefault, LOG_LIMITS.windowBytesMax);
  const linesMax = request.tail ?? Number.POSITIVE_INFINITY;
  const windows = await Promise.all(
    SOURCES.map((source) => readLogWindow(join(folder, VM_LOG_FILES[source]), request, budget)),
  );
  const marked = windows.map(({ lines }, at) => lines.map((line) => `${SOURCES[at]}: ${line}`));
  const counts = marked.map(() => 0);
  let [lines, bytes] = [0, 0];
  for (let isFull = false, took = true; took && !isFull; ) {
    took = false;
    for (const [at, all] of marked.entries()) {
      const line = all[all.length - 1 - (counts[at] ?? 0)];
      if (line === undefined) continue;
      bytes += Buffer.byteLength(line) + 1;
      isFull = lines >= linesMax || (bytes > bytesMax && lines > 0);
      if (isFull) break;
      lines += 1;
      counts[at] = (counts[at] ?? 0) + 1;
      took = true;
    }
  }
  const kept = marked.map((all, at) => all.slice(all.length - (counts[at] ?? 0)));
  const isCut = windows.some(({ truncated }) => truncated) || kept.flat().length < marked.flat().length;
  return { lines: kept.flat(), truncated: isCut };
}
