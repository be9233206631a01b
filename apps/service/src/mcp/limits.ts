/** Bounds of the service's side of tool calls, with their reasons. */
const KIB = 1024;
const MIB = 1024 * KIB;

export const WORKER_LIMITS = {
  /** A neighbour pair each, its channels, and what an HTTP client has open. */
  openFilesMax: 1_024,
  /** From the spawn to its word that it is ready: a busy machine loads a program in two seconds. */
  readyTimeoutMs: 15_000,
  /** From the end of its channel to the process being gone. */
  exitTimeoutMs: 1_000,
  /** A worker reads its grants whenever it runs at all. */
  grantTimeoutMs: 5_000,
  /** An answer is asked for so often, and one that has not come in so long means that it hangs. */
  beatIntervalMs: 3_000,
  beatTimeoutMs: 6_000,
  /** From a death to the next start; longer each time it dies young. */
  restartMsMin: 20,
  /** What came to work is back at once, however often it is killed; what never did may wait. */
  restartMsMax: { worked: 500, failed: 10_000 },
  youngMs: 10_000,
  /** Two calls that miss the same neighbour at once are answered by one grant. */
  regrantMsMin: 250,
  /** Whoever needs a worker waits so long for its start. */
  needTimeoutMs: 20_000,
  /** Of words that a worker says of its confinement. */
  wordsCharactersMax: 300,
} as const;

export const PROXY_LIMITS = {
  /** Rules compile in a fraction of it, 2,000 of them too; the holders of rules have their own, shorter time. */
  startPushTimeoutMs: 10_000,
  /** New servers and pins: nobody waits for their answer. */
  pushTimeoutMs: 5_000,
  /** A guest acknowledges a lane within a round trip, where it runs at all. */
  laneOpenTimeoutMs: 10_000,
  laneRetryMsMin: 100,
  laneRetryMsMax: 10_000,
  /** Between one look at the ledger and the next, where no fact comes that would say it. */
  creditIntervalMs: 200,
  /** The same, while a proxy has little left and the ledger is behind. */
  creditSoonMs: 5,
  /** After so many looks what the proxy knows is said again. */
  creditTicks: 25,
  /** Host calls without a time of their own: as long as a tool may take, and the way there and back. */
  callTimeoutMs: 305_000,
  lookTimeoutMs: 65_000,
  /** Different clients of the host that one proxy has been called for; the oldest is forgotten. */
  callersMax: 256,
} as const;

export const FACT_LIMITS = {
  /** What a proxy may have sent that is not known to be in the ledger's queue: two facts a call. */
  creditFacts: 2_048,
  creditBytes: 8 * MIB,
  /** Of a fact whose proxy does not say what it took of the credit. */
  factBytesUsual: 2 * KIB,
  /** Above this share of the ledger's own queue nothing more is lent. */
  queueShare: 0.5,
  /** Ends that came before their intent, which a larger message carries. */
  earlyMax: 1_024,
  /** Calls under way in one proxy, by its intents. */
  openMax: 65_536,
  /** Texts of a fact by kind: ids and words; what is longer was not made by our proxy. */
  idCharactersMax: 128,
  nameCharactersMax: 1_024,
  reasonCharactersMax: 4_096,
  labelCharactersMax: 64 * KIB,
  fieldsMax: 128,
  matchedMax: 512,
  /** Of a row with a body, what is not the body. */
  rowBytes: 4 * KIB,
  /** A body is replaced in slices of this many characters, so that other work has its turn. */
  sliceCharacters: 256 * KIB,
  /** Places that are looked at for the end of a slice. */
  sliceTries: 4,
  /** Snapshots by which a proxy may still have decided: those of the last changes. */
  snapshotsKept: 8,
  /** Errors that one proxy may make us log; more are counted. */
  faultsLogged: 32,
} as const;

export const PIN_LIMITS = {
  serversMax: 128,
  /** The largest list known has a few dozen; a server decides about it. */
  toolsMax: 1_024,
  nameCharactersMax: 256,
  /** Title and description as a person's list shows them. */
  shownCharactersMax: 4_096,
  /** Of one report: definitions as they are written, and once more canonical. */
  reportCharactersMax: 6 * MIB,
  definitionCharactersMax: 256 * KIB,
  /** Of a server's file: what was approved and what is now. */
  fileBytesMax: 48 * MIB,
  /** Approved definitions that are sent to a proxy: those of tools that have changed. */
  sentCharactersMax: 4 * MIB,
  /** Tools of one report whose change gets a row of its own. */
  notedMax: 64,
  /** Lines that are compared: beyond, what differs is shown as taken out and put in. */
  comparedLinesMax: 2_000,
  differenceLinesMax: 4_000,
  lineCharactersMax: 2_000,
} as const;
