/** Every bound of the guest channel, with its reason. Compared before anything is allocated. */
export const WIRE_LIMITS = {
  /** A mux frame in all, the length word apart (`length` counts type, id and payload): one virtio-serial burst. */
  frameBytesMax: 65_536,
  /** type (1) + stream id (4). */
  frameHeaderBytes: 5,
  /** One control message, MessagePack: fits a frame with room for the stream header. */
  controlMessageBytesMax: 61_440,
  /** What a sender may have in flight on one stream before the receiver grants more. */
  streamCreditBytes: 262_144,
  /** Open streams of one lane, both directions together. */
  streamsMax: 256,
  /** Jobs of one VM that run at the same time. */
  jobsMax: 128,
  /** The tag of an open frame: an id, UTF-8. */
  tagBytesMax: 64,
  /** The words after the code of a reset frame, for logs. */
  resetTextBytesMax: 128,
  /** The hello frame's payload: a map of a few short fields. */
  helloBytesMax: 1_024,
  /** Bytes of an older lane generation that are thrown away while a side looks for the sync word. */
  staleBytesMax: 1_048_576,
  /** One chunk of a job stream. */
  jobChunkBytesMax: 65_536,
  /** Nesting of a MessagePack value that we decode. */
  messageDepthMax: 32,
  /** One KEY=VALUE, as the kernel has it (MAX_ARG_STRLEN − 1). */
  envEntryBytesMax: 131_071,
  envKeyBytesMax: 256,
  /** The environment of a VM, all entries together. */
  envBytesMax: 1_048_576,
  pathBytesMax: 4_095,
  /** argv of a job inside a control message. A longer one goes by a file. */
  argvBytesMax: 49_152,
  /** Entries of one page of a directory listing. */
  listEntriesMax: 256,
  /** How long a side waits for the other's hello after a restore: stale bytes drain one buffer a turn. */
  helloTimeoutMs: 10_000,
} as const;
