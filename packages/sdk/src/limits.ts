/** Longest wait for the answer of a plain call. */
export const REQUEST_TIMEOUT_MS = 30_000;
/** Calls that boot a VM: a cold boot may take 60 s, and the first one may build what it starts from. */
export const START_TIMEOUT_MS = 120_000;
/** What the service may need beyond a job's own time limit to answer. */
export const JOB_MARGIN_MS = 10_000;
/** Longest silence inside a transfer of file or tree bytes. */
export const TRANSFER_IDLE_MS = 60_000;
/** A JSON answer: two streams of 1 MiB as escaped text or base64 fit well. */
export const JSON_BYTES_MAX = 32 * 1024 * 1024;
/** One line of a held create. */
export const HOLD_LINE_BYTES_MAX = 1024 * 1024;
/** A frame of capsem.stream.v1 (wire spec). */
export const STREAM_FRAME_BYTES_MAX = 262_144;
/** Stdin is cut into frames of this size, so that output and signals are never behind a long one. */
export const STDIN_CHUNK_BYTES = 65_536;
/** Received but not yet taken frames; above it the connection is paused. */
export const SOCKET_QUEUE_BYTES_MAX = 1024 * 1024;
/** How long the close of a WebSocket may take before the connection is cut. */
export const SOCKET_CLOSE_MS = 2_000;
/** sun_path of Linux holds 108 bytes with its NUL; a longer path is cut without a word. */
export const SOCKET_PATH_BYTES_MAX = 107;
/** An error body is one small object; more of it is not read. */
export const ERROR_BYTES_MAX = 64 * 1024;
