/** Bounds of the host tools' arguments and default windows. */
export const TOOL_LIMITS = {
  /**
   * What a read answers when nothing is asked: its base64 and the object around it stay under the 16 KiB that a client
   * which shows only text still sees whole.
   */
  windowBytes: 12_000,
  /** One read of a file or a log, and what the routes give at most. */
  windowBytesMax: 1_048_576,
  /** Characters of one write: a request line holds it twice over, for escapes. */
  contentCharsMax: 16 * 1024 * 1024,
  /** Entries asked of a directory; what does not fit the text mirror is left out and said so. */
  listEntries: 256,
  /** A day, as the routes have it. */
  timeoutSecsMax: 86_400,
  /** Some 12 KiB of entries: what a client that shows only text still shows whole. */
  evidenceRows: 25,
} as const;
