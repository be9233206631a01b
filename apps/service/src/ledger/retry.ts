import { LEDGER_LIMITS } from "./limits.ts";

/** One more try after a failure that time may heal: later each time, and soon again after a success. */
export class Retry {
  #failures = 0;
  #timer: NodeJS.Timeout | null = null;

  get isSet(): boolean {
    return this.#timer !== null;
  }

  later(work: () => void): void {
    const ms = Math.min(LEDGER_LIMITS.retryMsMin * 2 ** this.#failures, LEDGER_LIMITS.retryMsMax);
    this.#failures += 1;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      work();
    }, ms);
    this.#timer.unref();
  }

  clear(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  succeeded(): void {
    this.#failures = 0;
  }
}
