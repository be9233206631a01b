/** Every bound of the gateway, with its reason where the name does not give it. */
const KIB = 1024;
const MIB = 1024 * KIB;

export const HTTP_LIMITS = {
  /** Request line and headers. Below the service's 16 KiB: what passes here with our own headers passes there too. */
  headerBytesMax: 14 * KIB,
  headersMax: 64,
  headersTimeoutMs: 10_000,
  keepAliveTimeoutMs: 60_000,
  connectionsCheckMs: 2_000,
  /** A JSON body; uploads stream and the service bounds them. */
  bodyBytesMax: 10 * MIB,
  /** A body that sends nothing for so long is given up, while it is us who wait. */
  bodyIdleMs: 120_000,
  /** What a refused body may still send, and for how long, before it is cut: lets the client read the answer. */
  refusedBodyBytesMax: 16 * MIB,
  refusedBodyMs: 2_000,
} as const;

export const CONNECTION_LIMITS = {
  /** That showed the token. Less than half of what the service takes, so that they cannot lock out the command line. */
  membersMax: 224,
  /** That did not yet, as usual and at most: a client shows it with its first bytes, so only a burst has more. */
  strangersMax: 32,
  strangersBurstMax: 128,
  /** How long a stranger beyond the usual number is waited for. */
  strangerGraceMs: 250,
  /** That were sent away and may still read why. */
  leavingMax: 64,
  /** All of these, and some whose end is under way: nothing comes near it, each has a connection to the service too. */
  openMax: 480,
} as const;

export const AUTH_LIMITS = {
  tokenCharacters: 64,
  /** Failures within the window that are answered as such; further ones are throttled. */
  failuresMax: 20,
  windowMs: 60_000,
  /** How often a token file that cannot be used is tried again. */
  tokenRetryMs: 250,
  /** How often the token file is looked at while members are connected, so that a rotation ends what they have open. */
  tokenPollMs: 200,
} as const;

export const SERVICE_LIMITS = {
  /** Idle connections kept for reads. */
  keptConnectionsMax: 8,
  connectTimeoutMs: 5_000,
} as const;

export const WEBSOCKET_LIMITS = {
  openMax: 64,
  /** From the client's request to the service's answer. */
  handshakeTimeoutMs: 10_000,
  /** From our close frame, or one side's end, until the connection is cut. */
  closeTimeoutMs: 2_000,
} as const;

export const PROCESS_LIMITS = {
  /** What open requests get when the gateway stops. */
  closeTimeoutMs: 2_000,
  startTimeoutMs: 20_000,
  /** Each client, and a connection to the service for each; and some for Node. */
  openFilesMax: 1_024,
} as const;

export const LOG_LIMITS = {
  fileBytesMax: 10 * MIB,
  /** One that was nearly full when it was opened takes as much again, and a last line. The kernel holds us to it. */
  keptFileBytesMax: 21 * MIB,
} as const;
