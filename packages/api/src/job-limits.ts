/**
 * A job's start is one control message of the guest channel (60 KiB, headers and names included). Bytes of UTF-8;
 * each text counts five more for its place in the message.
 */
export const JOB_LIMITS = {
  /** The command line, or all arguments together. */
  commandBytesMax: 49_152,
  /** Command and the job's own environment together. */
  startBytesMax: 57_344,
} as const;
