/**
 * Long work over a ledger, in slices: a generator that yields between two of them and returns its result. Whoever
 * drives it gives other work its turn; nothing of the database is held open while it waits.
 */
export type Sliced<T> = Generator<void, T, void>;

/** At once, for a thread or a test that has nothing else to do. */
export function runSlices<T>(work: Sliced<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
