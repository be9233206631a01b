/** Bounds of the builtin tools, with their reasons. Times in milliseconds, sizes in bytes unless a name says more. */
export const BUILTIN_LIMITS = {
  /** It writes no file, but for its code cache when it is built. */
  fileBytesMax: 16 * 1024 * 1024,
  readyTimeoutMs: 10_000,
  /** Fetches at the same time: each may hold twice its body. */
  fetchesMax: 16,
  fetchesWaitingMax: 256,
} as const;

export const FETCH_LIMITS = {
  urlCharactersMax: 8_192,
  /** Each is dialled, and judged, like a first request. */
  redirectsMax: 5,
  /** Of a whole fetch, redirects and body with it; a caller may have less. */
  timeoutMs: 60_000,
  /** Of a body as it comes, and of what it is decompressed to: more than a model reads, less than hurts. */
  bodyBytesMax: 10 * 1024 * 1024,
  /** Decompressed to compressed. Pages stay below 20; a bomb of gzip has 1,000, one of brotli a million. */
  ratioMax: 250,
  /** Below this much output a ratio means nothing: an empty page of spaces is no bomb. */
  ratioFreeBytes: 1024 * 1024,
  /** Codings on top of each other. Servers use one; a second one is made by a careless proxy. */
  codingsMax: 2,
  /** RFC 9659: what an encoder for the web may ask of its decoder; the window is allocated at once. */
  zstdWindowBytesMax: 8 * 1024 * 1024,
  /** Bytes that are looked at for a charset, as browsers do. */
  charsetScanBytes: 1_024,
  /** Bytes that are looked at for what no text has in it. */
  binaryScanBytes: 8_192,
  /** Of what is given as base64 in one answer: it fits a message with room for the rest. */
  binaryBytesMax: 5 * 1024 * 1024,
} as const;

export const TEXT_LIMITS = {
  /** Some 5,000 tokens: a page of a page. */
  charsDefault: 20_000,
  charsMax: 1_000_000,
  /** A model asks for some lines, not for the whole again. */
  matchesDefault: 50,
  matchesMax: 500,
  contextMax: 20,
  /** A line of more is cut around its match: minified pages are one line. */
  lineCharsMax: 500,
  /** What all lines of an answer have together. */
  grepCharsMax: 200_000,
  headersMethodDefault: "HEAD",
} as const;

export const PATTERN_LIMITS = {
  charactersMax: 1_000,
  /** Groups in groups: the parser calls itself. */
  depthMax: 50,
  /** As RE2 has it. */
  repeatMax: 1_000,
  /** Steps of the compiled pattern: each character of a text costs at most so many. */
  stepsMax: 3_000,
  /** States that are kept before all are forgotten and made anew. */
  statesMax: 2_000,
} as const;

export const PAGE_LIMITS = {
  /** Threads for pages, patterns and zstd. A second one, so that a hostile page holds up no other at once. */
  threadsMax: 2,
  /** Jobs that wait for a thread; more are refused. */
  waitingMax: 64,
  /** One job: a megabyte of HTML takes a second where other work goes on. Then its thread is ended. */
  jobTimeoutMs: 15_000,
  /** A thread without work is ended: it holds some ten megabytes. */
  idleMs: 60_000,
  /** Of a thread's heap: pages larger than this can make are refused, and the process lives on. */
  heapMiB: 512,
  /** HTML beyond it is not converted; `raw` gives it. A page of a megabyte is large. */
  htmlBytesMax: 5 * 1024 * 1024,
  /** Elements in elements: what lies deeper comes as text. Real pages stay below 100. */
  depthMax: 200,
  /** Elements of a page whose article is looked for; the search visits them several times. */
  articleElementsMax: 50_000,
} as const;
