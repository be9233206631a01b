/** Bounds of the service's side of the ledger, with their reasons. */
const KIB = 1024;
const MIB = 1024 * KIB;

export const LEDGER_LIMITS = {
  /** Broken ledgers that the status names; `ledger list` has all. */
  brokenNamedMax: 3,
  /** One call: a transaction that is over in milliseconds, and a message that is written in less than one. */
  batchRowsMax: 500,
  batchBytesMax: 256 * KIB,
  /** Rows of a batch that are hashed before other work has its turn: a part of a millisecond. */
  hashedAtOnceMax: 50,
  /** Rules that matched one act and are recorded with it: more are counted. Readers show as many. */
  matchedRulesMax: 256,
  /** Beyond a stored body, which is 10 MiB of a tool's call at most: one more is a mistake of ours. */
  rowCharactersMax: 10 * MIB,
  /** Of one ledger, while its rows are not committed: some seconds of the busiest VM. */
  rowsWaitingMax: 20_000,
  charactersWaitingMax: 16 * MIB,
  /** Beyond them, for rows that end acts: what was begun is ended in evidence too. */
  endRowsMax: 4_000,
  endCharactersMax: 8 * MIB,
  /** Of all ledgers together: a dead ledger must not become the service's memory. */
  charactersOfAllMax: 128 * MIB,
  /** An act waits so long for a ledger that is being restarted. */
  awayWaitMs: 2_000,
  /** The same at the service's own start, when the program is loaded for the first time. */
  startWaitMs: 10_000,
  /** A walk over every row of the largest ledger. */
  wholeTimeoutMs: 10 * 60_000,
  /** A ledger that answers nothing for so long, with calls open, hangs: it is killed, and nothing is lost. */
  silenceMsMax: 30_000,
  /** From its start to its link; its own threads and calls give up sooner, unless it does not run at all. */
  linkTimeoutMs: 60_000,
  /** Of one channel at a time, which has room for 256 streams: exports stay open beside them. */
  callsMax: 128,
  callsWaitingMax: 16_384,
  /** After a failure that time may heal: a full disk, a locked file. */
  retryMsMin: 50,
  retryMsMax: 2_000,
  /** Whether a full ledger has found room again, asked when somebody wants some. */
  probeIntervalMs: 1_000,
  /** From the death of a ledger to its next start; longer each time it dies young. */
  restartMsMin: 20,
  /** One that came to work is back within a second however often it is killed; one that never did may wait. */
  restartMsMax: { worked: 200, failed: 5_000 },
  youngMs: 10_000,
  /** For a flush whose caller named no end. */
  flushTimeoutMs: 10_000,
  /** At the service's stop: flush, sign, close. */
  closeTimeoutMs: 5_000,
  /** From the end of its input to the process being gone. */
  exitTimeoutMs: 2_000,
  readTimeoutMs: 30_000,
  verifyTimeoutMs: 10 * 60_000,
  /** A signature costs the event loop a twentieth of a millisecond; a checkpoint costs the disk a sync. */
  signIntervalMs: 1_000,
  /** A ledger that dies each time it signs is broken in another way. */
  signTries: 3,
  /** A disk with less is full: a ledger's log grows by pages of a few KiB, its index by 32 KiB at once. */
  diskBytesMin: 64 * KIB,
  keyFileBytesMax: 4 * KIB,
  /** Its database, log and shared memory on each connection, for each VM that runs. */
  openFilesMax: 4_096,
  retentionIntervalMs: 3600_000,
} as const;
