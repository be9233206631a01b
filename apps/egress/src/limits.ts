/** Bounds of egress, with their reasons. Times in milliseconds. */
export const EGRESS_LIMITS = {
  /** It writes no file, but for its code cache at the end of a build. */
  fileBytesMax: 16 * 1024 * 1024,
  /** Of a machine's certificates: some hundred kilobytes are usual. */
  certificateBytesMax: 8 * 1024 * 1024,
  readyTimeoutMs: 10_000,
  /** One request to itself, on a machine under load. */
  warmTimeoutMs: 10_000,
  /** At the end: rows of what was open are on their way. */
  endTimeoutMs: 2_000,

  /** One admission of a declared server: its name is asked for. One that a person may be asked about has its caller's time. */
  admitTimeoutMs: 15_000,
  /** A channel has 256 streams both ways; the rest of them wait here. */
  admissionsMax: 96,
  admissionsWaitingMax: 4_096,
  /** A client whose admissions fail is answered from memory so long: it may not make a resolver of us. */
  refusalMs: 250,
  /** Refusals of one client that are remembered. */
  refusalsMax: 256,
  doneTimeoutMs: 30_000,

  connectTimeoutMs: 10_000,
  /** Below what servers wait for that do not say it, so that no request meets a connection that is being closed. */
  keepAliveMs: 4_000,
  /** Of those that say it. */
  keepAliveMsMax: 60_000,
  /** Of TLS, for one server: a connection that follows another one is quicker. */
  tlsSessionsMax: 4,

  /** What may wait for a slow reader before its connection is read no further. */
  bodyBytesWaitingMax: 262_144,
  /** Kept in memory, an answer is never cut by it. */
  answerHeaderBytesMax: 65_536,
  answerHeadersMax: 256,
  /** A shorter secret would blank texts that are none. */
  secretCharactersMin: 8,
  /** A text of an error of the network, in a message. */
  errorCharactersMax: 300,
  clientsMax: 1_024,
} as const;
