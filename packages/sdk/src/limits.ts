/** Longest wait for the answer of a plain call. */
export const REQUEST_TIMEOUT_MS = 30_000;
/** Calls that boot a VM: a cold boot may take 60 s, and the first one may build what it starts from. */
export const START_TIMEOUT_MS = 120_000;
/** The longest that a timer can wait: for work that has no limit of its own. */
export const NO_TIMEOUT_MS = 2_147_483_647;
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
/** Frames that a browser's WebSocket received and nobody took: it cannot be paused, so it is closed. */
export const WEB_QUEUE_BYTES_MAX = 16 * 1024 * 1024;
/** Bytes that a browser's WebSocket may hold unsent before `send` waits, and how often it looks again. */
export const WEB_UNSENT_BYTES_MAX = 1024 * 1024;
export const WEB_UNSENT_POLL_MS = 5;
/** What is collected where a runtime cannot stream an upload (HTTP/1.1 from a browser). A Blob has no limit here. */
export const COLLECTED_BYTES_MAX = 256 * 1024 * 1024;
/** A file read whole into memory: the longest text of common engines. */
export const READ_FILE_BYTES_MAX = 512 * 1024 * 1024;
/** Output that `job.output()` collects of one stream. */
export const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;
/** One line of `job.lines()`: a longer one is given in parts. */
export const LINE_CHARS_MAX = 1024 * 1024;
/** Entries of one page of a directory, and how deep one listing goes (route table). */
export const LIST_PAGE_ENTRIES = 256;
export const LIST_DEPTH_MAX = 16;
/** Links that `stat` follows, as Linux does. */
export const LINKS_MAX = 40;
/** A token file holds 64 characters and perhaps a line's end; more of it is not read. */
export const TOKEN_FILE_BYTES_MAX = 1024;
/** An event carries VM descriptions; `hello` has all of them. */
export const EVENT_BYTES_MAX = 8 * 1024 * 1024;
/** Of one client: reads and changes that wait for their answer's head, and how many calls may wait for a place. */
export const READS_MAX = 32;
/** A command holds its place until it ends. With the reads and the WebSockets it stays below what a gateway takes. */
export const CHANGES_MAX = 96;
export const WAITING_MAX = 4096;
/** Until a connection on this machine stands: it is there at once, or nobody takes it. */
export const CONNECT_MS = 5_000;
/** How often the other end of a connection is looked for in the kernel's list before it counts as not there. */
export const PEER_LOOKS = 5;
export const PEER_LOOK_PAUSE_MS = 5;
/** Faults of one refusal that are kept: a file of rules may have one on every line. */
export const ERROR_FAULTS_MAX = 256;
/** What a client calls itself, as it is recorded with every act: the service takes no longer one. */
export const CLIENT_NAME_CHARS_MAX = 128;
/** One page of evidence (route table). */
export const PAGE_ROWS_MAX = 1_000;
/** One line of an exported ledger: a row's fields are 256 KiB each and its body 10 MiB, escaped and in base64 (ledger spec). */
export const EXPORT_LINE_BYTES_MAX = 64 * 1024 * 1024;
/** Verifying walks every row of a ledger, up to the largest one that settings allow; archiving moves its files. */
export const LEDGER_TIMEOUT_MS = 600_000;
/** A past of a million events is judged again, row by row. */
export const REPLAY_TIMEOUT_MS = 300_000;
/** As much of a body is sent without a look at what has arrived: below the MiB that a service takes of one it refused. */
export const UNHEARD_BYTES_MAX = 256 * 1024;
/** A tool's own limit is at most 300 s (settings); the rest is the service's. */
export const MCP_CALL_TIMEOUT_MS = 310_000;
/** A server is dialled, greeted and read page by page. */
export const MCP_LOOK_TIMEOUT_MS = 90_000;
