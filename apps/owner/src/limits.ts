/** Bounds of one owner, with their reasons. Times in milliseconds. */
export const OWNER_LIMITS = {
  /** Kept output of one job, for readers that come late. */
  jobOutputBytesMax: 10 * 1024 * 1024,
  /** Kept output of all jobs together: the oldest finished ones go first. */
  vmOutputBytesMax: 64 * 1024 * 1024,
  /** Runs of one stream's bytes that a job's index may hold: bounds its memory under alternating output. */
  segmentsMax: 65_536,
  /** Finished jobs that `job.list` still knows. */
  finishedJobsMax: 256,
  /** Bytes of the job's end may come after `job_done`: how long we wait for what it announced. */
  outputTailTimeoutMs: 5_000,
  /** An answer of the guest agent to a control request that does no work. */
  requestTimeoutMs: 15_000,
  /** Mounting the disk may replay a journal. */
  mountTimeoutMs: 30_000,
  /** File operations move bytes meanwhile; this bounds the silence before the first answer. */
  fileAnswerTimeoutMs: 60_000,
  restoreTimeoutMs: 15_000,
  coldBootTimeoutMs: 90_000,
  saveTimeoutMs: 20_000,
  /** Order in the guest before the hypervisor is told to quit. */
  shutdownTimeoutMs: 8_000,
  pingIntervalMs: 1_000,
  pingTimeoutMs: 1_000,
  pingsMissedMax: 3,
  claimTimeoutMs: 600_000_000,
  /** Guest console lines that are logged each second; a flood is counted, not kept. */
  consoleLinesPerSecond: 500,
  consoleLineBytesMax: 8_192,
  planBytesMax: 262_144,
} as const;
