/** Bounds of requests that leave, with their reasons. */
export const NET_LIMITS = {
  /** Longer than any server takes. */
  urlCharactersMax: 8_192,
  /** RFC 1035: of a name without its last dot. */
  hostCharactersMax: 253,
  methodCharactersMax: 32,
  /** Of one request or one answer, and all their names and values together: what servers take by default. */
  headersMax: 128,
  headerCharactersMax: 32_768,
  /** One MCP message; it rides in the call's own message, which has room for it. */
  requestBodyBytesMax: 16_000_000,
  /** How much longer than egress itself a caller waits for what egress was to end. */
  graceMs: 2_000,
  /** The grace that a caller has for a process that is being started again. */
  peerTimeoutMs: 5_000,
  grantsMax: 16,
} as const;
