/** Every bound of a message, with its reason. */
export const MCP_LIMITS = {
  /** One JSON-RPC message as UTF-8: the largest argument or result that we carry. */
  messageBytesMax: 16_777_216,
  /** Nesting of any JSON text that is scanned: the scanner recurses. */
  scanDepthMax: 512,
  /** Nesting of what is parsed for a decision, and of a schema that is looked into: who needs more means no good. */
  strictDepthMax: 64,
  /** Members of one object that is parsed strictly, items of one array: bounds what a check of duplicates costs. */
  strictMembersMax: 100_000,
  /** A listed name: what clients pass on to models (`^[A-Za-z0-9_./-]{1,64}$`). */
  listedNameCharsMax: 64,
  /** A record between proxy and aggregator: one message. */
  recordBytesMax: 16_777_216,
} as const;
