/** The bounds of this package. Times are durations. */

/** From spawn to the end of the QMP negotiation; 30–70 ms when the host is idle. */
export const START_TIMEOUT_MS = 5_000;

/** One QMP command that only changes state; the longest measured is 11 ms. */
export const QMP_CALL_TIMEOUT_MS = 5_000;

/** One line of QMP. The longest answer of a command that we send is below 4 KiB. */
export const QMP_LINE_BYTES_MAX = 256 * 1024;

/** Commands without an answer. QEMU answers in order and stops reading at its own bound of eight. */
export const QMP_PENDING_MAX = 32;

/** After QMP ended: how long the exit code may take before the process is killed. */
export const EXIT_TIMEOUT_MS = 1_000;

/** How much of QEMU's error output goes into the reason of its end. */
export const STDERR_TAIL_BYTES_MAX = 4 * 1024;

/** How long the rest of the error output of an ended process may take. */
export const STDERR_TIMEOUT_MS = 200;

/** Run states that follow an event are polled: the event comes before the state. */
export const RUN_STATE_POLL_MS = 2;

/** A golden's memory and state are on a local disk or in memory: no reason to throttle the copy. */
export const MIGRATION_BYTES_PER_SECOND_MAX = 10 * 1024 ** 3;

/** The device state of a golden is 0.4 MB; a file far above that is not one. */
export const STATE_BYTES_MAX = 64 * 1024 ** 2;

/** Manifests are about 1 KiB. */
export const MANIFEST_BYTES_MAX = 64 * 1024;

/** A draft whose maker is gone, or that is older than any boot can take, is removed. */
export const DRAFT_AGE_MS_MAX = 60 * 60 * 1_000;

/** Output of a probed hypervisor that is kept while the token is looked for. */
export const PROBE_OUTPUT_BYTES_MAX = 64 * 1024;

/** A hypervisor that does not say its version in this time is not used. */
export const VERSION_TIMEOUT_MS = 5_000;
