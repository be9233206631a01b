import { LEDGER_LIMITS } from "./limits.ts";

/** Each bucket is so much wider than the one before: a percentile is exact to one in a hundred. */
const STEP = 1.02;
const LOWEST_MS = 0.001;

/** Times in buckets: percentiles of any number of them in bounded memory. */
export class TimeHistogram {
  readonly #counts = new Float64Array(LEDGER_LIMITS.timeBucketsMax);
  count = 0;
  maxMs = 0;

  add(ms: number): void {
    const bucket = ms <= LOWEST_MS ? 0 : Math.ceil(Math.log(ms / LOWEST_MS) / Math.log(STEP));
    const at = Math.min(bucket, this.#counts.length - 1);
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.count += 1;
    this.maxMs = Math.max(this.maxMs, ms);
  }

  /** The middle of the bucket that holds it, and never more than the largest time; 0 without one. */
  quantileMs(q: number): number {
    const wanted = Math.max(1, Math.ceil(q * this.count));
    let seen = 0;
    for (let at = 0; at < this.#counts.length; at++) {
      seen += this.#counts[at] ?? 0;
      if (seen >= wanted) return Math.min(this.maxMs, LOWEST_MS * STEP ** (at - 0.5));
    }
    return 0;
  }
}
