/** Bounds of what every process has from the service, with their reasons. */
export const WORKER_LIMITS = {
  /** A scope, some numbers, some descriptors. */
  planBytesMax: 65_536,
  /** The kernel's part of one wait for a grant; after it the next one begins, so nothing hangs on it. */
  grantWaitMs: 10_000,
} as const;
