import { LEDGER_ROW_LIMITS } from "@capsem/api/ledger-row";

/** Bounds of a ledger, with their reasons. Times in milliseconds. */
const KIB = 1024;
const MIB = 1024 * KIB;

export const LEDGER_LIMITS = {
  textBytesMax: LEDGER_ROW_LIMITS.textBytesMax,
  bodyBytesMax: LEDGER_ROW_LIMITS.bodyBytesMax,
  /** Rows of one append. More are several: the others on the channel wait for a commit. */
  appendRowsMax: 16_384,
  /** Names that producers choose: they stand in each row of the chain. */
  nameBytesMax: 128,
  /** Beyond the quota, for rows that end what was begun and for the life of the VM: some thousand of them. */
  reserveBytes: 16 * MIB,
  /** The log of changes is written back and begun anew by the writer beyond this; what is beyond it counts to the quota. */
  walBytesMax: 64 * MIB,
  /** Near the quota a log that somebody holds is tried again after so much more of it. */
  walRetryBytes: 1 * MIB,
  /** A commit waits so long for a lock of another connection; only a checkpoint holds one, for a moment. */
  busyTimeoutMs: 5_000,
  /** The writer's own checkpoint gives up sooner: appends wait behind it, and it is tried again. */
  checkpointBusyTimeoutMs: 20,
  /** Signed heads that are kept: the last one covers all before it, the others show when it was signed. */
  headsMax: 256,
  /** Databases that the writer holds open; the one unused for longest is closed for another, and opened again. */
  openMax: 32,
  /** The same for connections that read. */
  readersMax: 16,
  /** Rows of the chain that a producer gets in one answer, and their characters: a message far below what rpc takes. */
  chainRowsMax: 4_096,
  chainCharactersMax: 1 * MIB,
  /** Rows that are looked at before other work has its turn. */
  sliceRows: 2_048,
  /** The same in bytes of bodies. */
  sliceBytesMax: 8 * MIB,
  pageRowsMax: 1_000,
  /** One page of an answer, as JSON. */
  pageBytesMax: 1 * MIB,
  /** A title and a text among details: the row has all of it, and the export. */
  titleCharactersMax: 512,
  detailCharactersMax: 1_024,
  /** What a reader gets of a command; the export has all of it. */
  commandCharactersMax: 16 * KIB,
  /** A stored event that a page holds; a larger one is named, with its hash. */
  eventCharactersMax: 256 * KIB,
  cursorCharactersMax: 64,
  /** Rules, types and requesters in a statistic: what comes most often. */
  groupsMax: 256,
  /** Tools that are counted apart: a guest may call by any name. */
  toolsCountedMax: 1_024,
  /** Steps of the histogram of times, each 2 % wide: from a microsecond to a year. */
  timeBucketsMax: 2_048,
  /** Ledgers of one list. */
  ledgersMax: 10_000,
  /** Archives of one ledger: each is a start over after a fault that somebody looked at. */
  archivesMax: 1_000,
} as const;

/** Memory for pages of one file, KiB: the ends of its tables and indexes stay in it. */
export const CACHE_KIB = { writer: 4_096, reader: 2_048 } as const;
