/** Every bound of MCP frames, with its reason. Not of the table that both ends of a lane compare: only port 5002 has them. */
export const MCP_FRAME_LIMITS = {
  /** What the length word of a frame may say: 1 MiB of payload, and a page for header and name. */
  frameBytesMax: 1_052_672,
  /** Behind the length word. */
  headerBytes: 16,
  /** Payload that we put into one frame; a longer message is cut. */
  payloadBytesMax: 1_048_576,
  /** One message, all its frames together. Also all messages of a stream that have begun and not ended. */
  messageBytesMax: 16_777_216,
  /** Messages of one stream that have begun and not ended: each has an overhead of its own. Senders need one. */
  begunMax: 16,
  /** A process name, UTF-8. */
  nameBytesMax: 128,
  /** The first line of a stream, with its NUL and its newline. */
  metaLineBytesMax: 4_096,
} as const;
