import { join } from "node:path";
import { type HomeLayout, vmFolder } from "../home/layout.ts";
import { LOG_LIMITS } from "../limits.ts";
import { type LogWindow, ReadBudget, readLogWindow, type WindowRequest } from "./log-window.ts";
import { VM_LOG_FILES } from "./vm-logs.ts";

interface TimedLine {
  readonly atMs: number;
  readonly text: string;
}

/**
 * The last lines of all these VMs' owners that fit, in the order of their times, each with its `vm_id`. One VM
 * is read after the other and the window cut after each: never more than two windows are in memory.
 */
export async function readOwnerLogs(
  layout: HomeLayout,
  ids: readonly string[],
  request: WindowRequest,
  signal?: AbortSignal,
): Promise<LogWindow> {
  const budget = new ReadBudget(signal);
  const bytesMax = Math.min(request.maxBytes ?? LOG_LIMITS.windowBytesDefault, LOG_LIMITS.windowBytesMax);
  const linesMax = request.tail ?? Number.POSITIVE_INFINITY;
  let kept: TimedLine[] = [];
  let truncated = false;
  for (const id of ids) {
    const found = await readLogWindow(join(vmFolder(layout, id).logs, VM_LOG_FILES.owner), request, budget);
    const merged = [...kept, ...timed(id, found.lines)].sort((left, right) => left.atMs - right.atMs);
    const first = firstThatFits(merged, linesMax, bytesMax);
    kept = merged.slice(first);
    truncated ||= found.truncated || first > 0;
  }
  return { lines: kept.map(({ text }) => text), truncated };
}

/** A line without a time belongs to the one before it. */
function timed(id: string, lines: readonly string[]): TimedLine[] {
  let atMs = 0;
  return lines.map((line) => {
    const fields = fieldsOf(line);
    const said = typeof fields.time === "string" ? Date.parse(fields.time) : Number.NaN;
    if (Number.isFinite(said)) atMs = said;
    return { atMs, text: JSON.stringify({ vm_id: id, ...fields }) };
  });
}

function fieldsOf(line: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value === "object" && value !== null) return { ...value };
  } catch {
    // A line that was cut is still worth its text.
  }
  return { message: line };
}

function firstThatFits(lines: readonly TimedLine[], linesMax: number, bytesMax: number): number {
  let bytes = 0;
  for (let at = lines.length - 1; at >= 0; at -= 1) {
    bytes += Buffer.byteLength(lines[at]?.text ?? "") + 1;
    if (lines.length - at > linesMax || bytes > bytesMax) return at + 1;
  }
  return 0;
}
