import { Failure, Slots } from "@capsem/base";
import type { Sliced } from "@capsem/ledger";
import { APP_LIMITS } from "./limits.ts";

/** Long reads beside everything else: a few at a time, each in slices, between which other work has its turn. */
export class Walks {
  readonly #slots = new Slots(APP_LIMITS.walksMax, APP_LIMITS.walksWaitingMax);

  /** `open` is called when it is its turn, `close` on every path. */
  async run<R extends { close(): void }, T>(
    signal: AbortSignal,
    open: () => R,
    work: (opened: R) => Sliced<T>,
  ): Promise<T> {
    const place = this.#slots.take(signal);
    if (place === null)
      throw new Failure("unavailable", "Cannot read the ledger: too many wait", { retryable: true });
    const leave = await place;
    try {
      const opened = open();
      try {
        return await drive(work(opened), signal);
      } finally {
        opened.close();
      }
    } finally {
      leave();
    }
  }
}

async function drive<T>(work: Sliced<T>, signal: AbortSignal): Promise<T> {
  try {
    for (;;) {
      const until = performance.now() + APP_LIMITS.sliceMs;
      do {
        const { done, value } = work.next();
        if (done === true) return value;
      } while (performance.now() < until);
      await nextTurn();
      if (signal.aborted) throw new Failure("cancelled", "Cancelled", { cause: signal.reason });
    }
  } finally {
    work.return(undefined as T);
  }
}

/** After what the event loop has to do. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
