import { Failure, within } from "@capsem/base";

/** Whoever waits for a condition of somebody else's state; told of each change, looks anew. */
export class Waiters {
  readonly #checks = new Set<() => void>();

  /** The state is another one. */
  tell(): void {
    for (const check of [...this.#checks]) check();
  }

  /** Resolves when `isMet` is true, rejects with what it throws, and with `makeError` after that time. */
  async until(
    isMet: () => boolean,
    timeoutMs: number,
    makeError: () => Error,
    signal?: AbortSignal,
  ): Promise<void> {
    if (isMet()) return;
    if (signal?.aborted === true) throw new Failure("cancelled", "Cancelled", { cause: signal.reason });
    let check: (() => void) | undefined;
    const met = new Promise<void>((resolve, reject) => {
      check = () => {
        try {
          if (isMet()) resolve();
        } catch (thrown) {
          reject(thrown);
        }
      };
      this.#checks.add(check);
    });
    try {
      await within(met, timeoutMs, makeError, signal);
    } finally {
      if (check !== undefined) this.#checks.delete(check);
    }
  }
}
