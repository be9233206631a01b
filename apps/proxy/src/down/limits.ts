/** Every bound of the ways in, with its reason. Tests give their own. */
export const DOWN_LIMITS = {
  /** One message over HTTP; frames have the same. */
  messageBytesMax: 16_777_216,
  /** Messages of all clients of a VM that have begun and not ended: a guest may open 256 streams. */
  begunBytesMax: 67_108_864,
  /** Requests of one client, or of all over HTTP, that are not answered yet. More are refused, one by one. */
  requestsMax: 1_024,
  /** Text of these together. */
  requestCharsMax: 67_108_864,
  /** Requests of ours to one client that it has not answered. */
  hostRequestsMax: 64,
  /** Of those that it need not answer any more, whose answers may be on their way: a later one is a fault. */
  withdrawnMax: 1_024,
  /** What a client has not taken yet, from which on nothing is read from it. */
  unsentBytesHigh: 8_388_608,
  /** The same, from which on it is given up: sixteen of the longest messages. */
  unsentBytesMax: 268_435_456,
  /** The metadata line is sent as soon as a program connects. */
  metaLineTimeoutMs: 10_000,
  /** An agent starts its servers before it needs them. */
  firstByteTimeoutMs: 900_000,
  /** What runs when a framed client has said all: its own end waits no longer. */
  lastAnswersTimeoutMs: 30_000,
  /** What a client may still send after our end, to be thrown away, before its stream is reset. */
  discardTimeoutMs: 10_000,
  /** Request line and headers. */
  headerBytesMax: 16_384,
  /** From the start of a connection, or from the last answer on it, to the end of the next request's headers. */
  requestWaitMs: 75_000,
  /** From there to the end of its body. */
  bodyTimeoutMs: 60_000,
  /** A comment on an event stream that is idle, and before that the start of one: nobody on the way takes it for dead. */
  keepAliveMs: 15_000,
  /** Sessions over HTTP: most clients never say that they go. The one idle for longest makes room. */
  sessionsMax: 256,
  sessionIdleMs: 1_800_000,
  /** A client that lost an event stream of its session comes back within this, or its request is cancelled. */
  resumeMs: 60_000,
  /** When it should: what it waits for is in this machine. */
  resumeRetryMs: 1_000,
  /** Events of one stream that are kept for it, the last ones. */
  resumeEventsMax: 256,
  /** Characters of these, of all streams of a VM: two of the longest answers. */
  resumeCharsMax: 33_554_432,
  /** A path as it is recorded. */
  pathCharsMax: 2_048,
} as const;

export type DownLimits = { readonly [K in keyof typeof DOWN_LIMITS]: number };
