import { open } from "node:fs/promises";
import { LOG_LIMITS } from "../limits.ts";
import { logFilesOf } from "./log-file.ts";

export interface WindowRequest {
  readonly tail?: number | undefined;
  /** Plain text, not a pattern. */
  readonly grep?: string | undefined;
  readonly maxBytes?: number | undefined;
}

export interface LogWindow {
  readonly lines: string[];
  /** Older lines that match exist, or a line was cut. */
  readonly truncated: boolean;
}

/** The last lines of a log that fit, oldest first, over its rotated files. Reads backwards in bounded steps. */
export async function readLogWindow(path: string, request: WindowRequest): Promise<LogWindow> {
  const bytesMax = Math.min(request.maxBytes ?? LOG_LIMITS.windowBytesDefault, LOG_LIMITS.windowBytesMax);
  const linesMax = request.tail ?? Number.POSITIVE_INFINITY;
  const taken: string[] = [];
  let bytes = 0;
  const files = await logFilesOf(path);
  for (const file of files.reverse()) {
    for await (const line of linesBackwards(file)) {
      if (line === "" || (request.grep !== undefined && !line.includes(request.grep))) continue;
      if (taken.length >= linesMax) return { lines: taken.reverse(), truncated: true };
      const size = Buffer.byteLength(line) + 1;
      if (bytes + size > bytesMax) {
        // One line alone may be larger than the window: its beginning is better than nothing.
        if (taken.length === 0) taken.push(Buffer.from(line).subarray(0, bytesMax).toString("utf8"));
        return { lines: taken.reverse(), truncated: true };
      }
      bytes += size;
      taken.push(line);
    }
  }
  return { lines: taken.reverse(), truncated: false };
}

const STEP_BYTES = 65_536;

async function* linesBackwards(path: string): AsyncGenerator<string> {
  const file = await open(path, "r");
  try {
    let at = (await file.stat()).size;
    let rest = Buffer.alloc(0);
    while (at > 0) {
      const length = Math.min(STEP_BYTES, at);
      at -= length;
      const step = Buffer.alloc(length);
      const { bytesRead } = await file.read(step, 0, length, at);
      let held = Buffer.concat([step.subarray(0, bytesRead), rest]);
      for (let cut = held.lastIndexOf(10); cut !== -1; cut = held.lastIndexOf(10)) {
        yield held.subarray(cut + 1).toString("utf8");
        held = held.subarray(0, cut);
      }
      rest = held;
    }
    yield rest.toString("utf8");
  } finally {
    await file.close();
  }
}
