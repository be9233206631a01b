import type { FileHandle } from "node:fs/promises";
import { apiFailure } from "@capsem/api";
import { Failure } from "@capsem/base";
import { isMissing } from "../home/atomic-file.ts";
import { openRegularFile } from "../home/regular-file.ts";
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

/** How much may still be read for one request, over all the logs that it looks into. */
export class ReadBudget {
  readonly #signal: AbortSignal | undefined;
  #bytesLeft: number = LOG_LIMITS.readBytesMax;

  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  get isSpent(): boolean {
    return this.#bytesLeft <= 0;
  }

  /** Of what is wanted, so much may be read now. Throws "cancelled" when nobody waits for it any more. */
  take(bytes: number): number {
    if (this.#signal?.aborted === true) {
      throw apiFailure("cancelled", "Cannot read the log: its reader has gone", {
        cause: this.#signal.reason,
      });
    }
    const granted = Math.min(bytes, this.#bytesLeft);
    this.#bytesLeft -= granted;
    return granted;
  }
}

/** The last lines of a log that fit, oldest first, over its rotated files. Reads backwards in bounded steps. */
export async function readLogWindow(
  path: string,
  request: WindowRequest,
  budget: ReadBudget = new ReadBudget(),
): Promise<LogWindow> {
  const bytesMax = Math.min(request.maxBytes ?? LOG_LIMITS.windowBytesDefault, LOG_LIMITS.windowBytesMax);
  const linesMax = request.tail ?? Number.POSITIVE_INFINITY;
  const taken: string[] = [];
  let bytes = 0;
  const files = await logFilesOf(path);
  for (const file of files.reverse()) {
    for await (const line of linesBackwards(file, budget)) {
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
    if (budget.isSpent) return { lines: taken.reverse(), truncated: true };
  }
  return { lines: taken.reverse(), truncated: false };
}

const STEP_BYTES = 65_536;

/** From the last to the first, as far as the budget goes. Of a line above the limit of a line, its beginning. */
async function* linesBackwards(path: string, budget: ReadBudget): AsyncGenerator<string> {
  const file = await openLog(path);
  if (file === null) return;
  try {
    let at = (await file.stat()).size;
    // What is known of the beginning of the line that goes on before `at`.
    let rest: Buffer = Buffer.alloc(0);
    while (at > 0) {
      const length = budget.take(Math.min(STEP_BYTES, at));
      // The beginning of this line is out of reach.
      if (length === 0) return;
      at -= length;
      const step = Buffer.alloc(length);
      const { bytesRead } = await file.read(step, 0, length, at);
      let held = Buffer.concat([step.subarray(0, bytesRead), rest]);
      for (let cut = held.lastIndexOf(10); cut !== -1; cut = held.lastIndexOf(10)) {
        yield textOf(held.subarray(cut + 1));
        held = held.subarray(0, cut);
      }
      rest = held.subarray(0, LOG_LIMITS.lineBytesMax);
    }
    yield textOf(rest);
  } finally {
    await file.close();
  }
}

function textOf(line: Buffer): string {
  return line.toString("utf8", 0, LOG_LIMITS.lineBytesMax);
}

/** Null: rotated away meanwhile, or something else lies in its place, which is no log. */
async function openLog(path: string): Promise<FileHandle | null> {
  try {
    return await openRegularFile(path);
  } catch (thrown) {
    if (isMissing(thrown) || (thrown instanceof Failure && thrown.kind === "file_refused")) return null;
    throw thrown;
  }
}
