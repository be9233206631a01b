/** Bounds of the aggregator, with their reasons. Times in milliseconds. */
export const APP_LIMITS = {
  /** It writes no file, but for its code cache when it is built. */
  fileBytesMax: 16 * 1024 * 1024,
  readyTimeoutMs: 10_000,
  /** How long a call waits for the process that dials, which may be starting again. */
  egressTimeoutMs: 5_000,
  /** What a proxy is told, it takes at once. */
  eventTimeoutMs: 5_000,
  /** At the end: sessions are ended at their servers, as far as these answer. */
  endTimeoutMs: 1_000,
} as const;

/** Of one message: what a server says, and what it is told. A record and an rpc message hold no more. */
const MESSAGE_BYTES_MAX = 16 * 1024 * 1024;

/** Bounds of what one external server may take from us. */
export const UPSTREAM_LIMITS = {
  serversMax: 64,
  messageBytesMax: MESSAGE_BYTES_MAX,
  /** Of all that is said in the course of one call: an answer, and what comes before it. */
  callBytesMax: 4 * MESSAGE_BYTES_MAX,
  /** What one server's unfinished messages may hold in memory together: four large answers. */
  heldBytesMax: 4 * MESSAGE_BYTES_MAX,
  /** Comments and other things between two events. A comment each quarter of a minute reaches it in months. */
  silentBytesMax: 1_048_576,
  /** As much of a text within a large answer is looked at to find where its parts begin; more than an id may have. */
  literalCharsMax: 2_048,
  /** Of an event stream's line that is no data. */
  fieldBytesMax: 65_536,
  /** Lines that make up one event. */
  dataLinesMax: 65_536,
  /** Of an answer that is an error: a message for people is taken from it. */
  errorBodyBytesMax: 65_536,
  /** What a stream that belongs to no call may say within the window; more ends it, and it is opened later again. */
  streamBytesMax: 32 * 1024 * 1024,
  /** The same where all answers come on that one stream too. */
  sharedStreamBytesMax: 256 * 1024 * 1024,
  streamWindowMs: 10_000,
  /** Calls of one server at once, and those that wait for a place: more than a proxy has. */
  callsMax: 64,
  callsWaitingMax: 512,
  /** Requests of a server in the course of one call, all together. */
  askedMax: 256,
  /** Of one call: as long as a proxy waits for one, and some more. */
  callTimeoutMsMax: 3_600_000,
  /** The name of a method. */
  methodCharactersMax: 128,
  sessionIdCharactersMax: 1_024,
  /** An id of a server's request, an event's id: both are sent back. */
  idCharactersMax: 1_024,
  /** Whether a server speaks by 2026-07-28: one that does not answers with an error, or not at all. */
  probeTimeoutMs: 2_000,
  /** The handshake, all of its ways together. */
  openTimeoutMs: 20_000,
  /** One of its steps. */
  stepTimeoutMs: 10_000,
  /** A notification, or an answer to a server. */
  noticeTimeoutMs: 5_000,
  /** A server that is told news asks within this what it wants to know. */
  newsWaitMs: 2_000,
  /** A cancellation is on its way before the answer's connection is closed. */
  cancelTimeoutMs: 1_000,
  /** After the answer its stream ends by itself, and its connection is used again; or it is closed. */
  lingerMs: 250,
  lingerBytesMax: 65_536,
  /** Same-origin redirects of one request: a slash at the end, a moved path. */
  redirectsMax: 3,
  /** A stream that ended is asked for again after this, unless the server said when. */
  retryMs: 1_000,
  retryMsMin: 100,
  retryMsMax: 60_000,
  /** Attempts at the rest of one answer that brought nothing new. */
  resumesMax: 5,
  /** Failing again and again, a server is left alone for longer and longer. */
  backoffMsMin: 250,
  backoffMsMax: 30_000,
  /** Resources of one server whose changes somebody waits for. */
  subscriptionsMax: 1_024,
  uriCharactersMax: 8_192,
  /** What is said of changes leaves together, and so many in one go; more of one server are dropped. */
  changesDelayMs: 20,
  changesMax: 256,
  /** Log messages of one server a second that belong to no call; more are dropped. */
  logsPerSecond: 100,
  /** Words of a server that are shown to people. */
  wordsCharactersMax: 300,
} as const;

/** Bounds of one server's catalogue. All of it is one rpc message. */
export const CATALOG_LIMITS = {
  pagesMax: 250,
  itemsMax: 10_000,
  bytesMax: 12 * 1024 * 1024,
  timeoutMs: 30_000,
} as const;
