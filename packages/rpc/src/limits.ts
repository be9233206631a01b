/** Bounds of a call between two of our own processes. */
export const RPC_LIMITS = {
  /** One params or result message. Larger things ride on the stream of an `open`. */
  messageBytesMax: 16_777_216,
  /** The name of a method is the tag of its stream. */
  methodBytesMax: 64,
  /** What a failure says to the caller; longer text is cut. */
  errorMessageCharactersMax: 4_096,
  /** Ids of a rule and of an ask, beside the words of a refusal. */
  factCharactersMax: 256,
  traceCharactersMax: 256,
  /** setTimeout takes no more; a longer time is no deadline. */
  timeoutMsMax: 2_147_483_647,
} as const;

/** The mux port of calls. */
export const RPC_PORT = 1;
