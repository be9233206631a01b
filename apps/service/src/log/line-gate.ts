import { LOG_LIMITS } from "../limits.ts";

/**
 * How much one VM's processes may say. A bucket of bytes that fills with time: each line takes its own and a share for
 * what a line costs us, so that many short ones are no way around it.
 */
export class LineGate {
  readonly #nowMs: () => number;
  #bytesLeft: number = LOG_LIMITS.burstBytesMax;
  #filledMs: number;
  #droppedLines = 0;

  /** `nowMs` is a clock that nobody sets. */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
    this.#filledMs = nowMs();
  }

  /** False: the line is too much. The caller drops it, and says how many it has dropped. */
  mayPass(lineBytes: number): boolean {
    const nowMs = this.#nowMs();
    const filled = this.#bytesLeft + ((nowMs - this.#filledMs) / 1_000) * LOG_LIMITS.bytesPerSecondMax;
    this.#bytesLeft = Math.min(filled, LOG_LIMITS.burstBytesMax);
    this.#filledMs = nowMs;
    const cost = lineBytes + LOG_LIMITS.lineCostBytes;
    if (this.#bytesLeft < cost) return false;
    this.#bytesLeft -= cost;
    return true;
  }

  drop(lines: number): void {
    this.#droppedLines += lines;
  }

  /** Of the dropped ones, those that were not asked for yet. */
  takeDropped(): number {
    const dropped = this.#droppedLines;
    this.#droppedLines = 0;
    return dropped;
  }
}

/** As an owner would say it. */
export function droppedLine(lines: number): string {
  return JSON.stringify({
    ...{ source: "owner", level: "warning", message: "log lines dropped: too many at once" },
    dropped_lines: lines,
  });
}
