import { UPSTREAM_LIMITS } from "../limits.ts";
import { rude } from "./failure.ts";

/** Bounds what a stream without an end says within a window of time. */
export class StreamMeter {
  readonly #bytesMax: number;
  readonly #now: () => number;
  #windowEndsAt = 0;
  #bytes = 0;

  constructor(bytesMax: number, now: () => number = () => performance.now()) {
    this.#bytesMax = bytesMax;
    this.#now = now;
  }

  /** Throws "upstream_failed". */
  count(bytes: number): void {
    const now = this.#now();
    if (now >= this.#windowEndsAt) {
      this.#windowEndsAt = now + UPSTREAM_LIMITS.streamWindowMs;
      this.#bytes = 0;
    }
    this.#bytes += bytes;
    if (this.#bytes > this.#bytesMax) throw rude("says too much that nobody asked for");
  }
}
