const KIB = 1024;

/** What a row may hold, for whoever sends rows and for the ledger that stores them. */
export const LEDGER_ROW_LIMITS = {
  /** One text of a row. A longer one is cut by its producer, which says so in the row. */
  textBytesMax: 256 * KIB,
  /** One stored event or body: a direction of a connection, as far as it is kept. */
  bodyBytesMax: 10 * KIB * KIB,
  /** The last time that a date can name, in milliseconds. */
  timeMsMax: 8.64e15,
} as const;
