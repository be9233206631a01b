/** Bounds of the ledger process, with their reasons. Times in milliseconds. */
export const APP_LIMITS = {
  /** What one transaction takes from the queue: a commit of some ten milliseconds, so that no append waits longer. */
  drainRowsMax: 4_096,
  drainBytesMax: 16 * 1024 * 1024,
  /** The log is written back at most so often, beside the commits. */
  checkpointIntervalMs: 200,
  /** Long reads give other work its turn after this. */
  sliceMs: 4,
  /** Walks over whole ledgers at the same time; the others wait. */
  walksMax: 2,
  walksWaitingMax: 256,
  /** No file of ours grows beyond: the largest quota that settings allow. */
  fileBytesMax: 64 * 1024 ** 3,
  /** Threads that compile, load SQLite and say so, on a busy machine. */
  threadTimeoutMs: 30_000,
  readyTimeoutMs: 10_000,
  /** At the end: what was taken is committed and written back. */
  endTimeoutMs: 10_000,
} as const;
