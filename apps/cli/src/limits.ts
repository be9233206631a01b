/** A service that is stopped (SIGSTOP) must be reported within 5 s, the start of Node included. */
export const PROBE_STOPPED_MS = 3_000;
/** A service that runs and does not answer, on a loaded machine. */
export const PROBE_SILENT_MS = 15_000;
export const SERVICE_START_MS = 30_000;
export const SERVICE_POLL_MS = 50;
/** Another start that won the race may still be opening its socket when ours has given up. */
export const SERVICE_LOSER_GRACE_MS = 3_000;
/** Stopping ends all VMs, each with 10 s. */
export const SERVICE_STOP_MS = 30_000;
export const SERVICE_KILL_MS = 5_000;
/** After the second Ctrl-C, a SIGTERM or a closed pipe: how long we wait for the job's or VM's end. */
export const KILL_GRACE_MS = 3_000;
/** A job's end comes from the guest; this is what it may take beyond the job's own limit. */
export const JOB_LIMIT_MARGIN_MS = 10_000;
/** `--json` keeps this much of each stream, like the exec route. */
export const JSON_STREAM_BYTES_MAX = 1024 * 1024;
export const PROGRESS_INTERVAL_MS = 100;
/** Lines of progress where nobody watches. */
export const PLAIN_PROGRESS_INTERVAL_MS = 5_000;
/** How often a start that takes long is asked about; a warm one is over before. */
export const STARTING_POLL_MS = 1_000;
export const DOCTOR_COMMAND_MS = 5_000;
/** Below the floor no VM is created; twice that is where a warning helps. */
export const DISK_FLOOR_BYTES = 2 * 1024 ** 3;
export const LOG_TAIL_BYTES = 4_096;
/** Variables of a run that are more than this are its VM's, where a megabyte of them fits. */
export const JOB_ENV_BYTES_MAX = 4_096;
/** Width of a table where no terminal says its own. */
export const PLAIN_COLUMNS = 80;
/** Of a help where no terminal says its own, and of one on a terminal that is wider than one reads. */
export const HELP_COLUMNS = 80;
export const HELP_COLUMNS_MAX = 120;
export const GATEWAY_PORT = 19_222;
/** Its program starts it confined and waits for it, with a limit of its own below this. */
export const GATEWAY_START_MS = 30_000;
/** Its gatekeeper kills it after 5 s. */
export const GATEWAY_STOP_MS = 10_000;
export const GATEWAY_PROBE_MS = 3_000;
/** A pid, a port. */
export const RUN_FILE_BYTES_MAX = 64;
/** vm.json and settings.toml: as much as the service reads of them. */
export const RECORD_BYTES_MAX = 4 * 1024 * 1024;
/** A standard input that says nothing for so long may still do; one that is at its end has been seen to be. */
export const STDIN_LOOK_MS = 50;
/** A call without an answer for so long may be held by an ask; nearly all others have been answered. */
export const HELD_LOOK_MS = 300;
/** The longest that an ask holds a call (security spec), and what its answer may need besides. */
export const HELD_MS = 310_000;
/** How soon after its ask ended a call counts as late again. */
export const HELD_POLL_MS = 250;
/** Of a call that names no limit: as the SDK has it. */
export const REQUEST_MS = 30_000;
/** The longest that a timer can wait. */
export const TIMER_MS_MAX = 2_147_483_647;
/** A rule file, or a corporation's policy: as much as the routes take. */
export const POLICY_TEXT_BYTES_MAX = 262_144;
/** An event to be judged: its texts are bounded each, and are few. */
export const EVENT_TEXT_BYTES_MAX = 1024 * 1024;
export const SECRET_CHARS_MIN = 8;
export const SECRET_BYTES_MAX = 16_384;
/** A key that was meant for the ask before must not answer the one that just came. */
export const KEY_GUARD_MS = 500;
/** As much of a note as the route takes. */
export const NOTE_CHARS_MAX = 512;
/** Asks that are over and may be told of again, which is shown once: as many as wait at once, some times over. */
export const ASKS_TOLD_MAX = 1_024;
/** How often a service that is away is looked for. */
export const EVENTS_AGAIN_MS = 1_000;
/** Rows that a person is shown where no number is asked for. */
export const ROWS_SHOWN = 50;
export const ROWS_ASKED_MAX = 100_000;
/** Before the service is asked whether the policy is right, doctor waits for nobody. */
export const DOCTOR_CALL_MS = 5_000;
