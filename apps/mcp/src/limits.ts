/** A result's text repeats its JSON up to this; many clients show nothing else. Above it the text says how large it is. */
export const TEXT_MIRROR_BYTES_MAX = 16_384;
/** Of a command's output that is over the mirror, the text has this much of each stream's end. */
export const OUTPUT_TAIL_CHARS = 3_000;
/** `--timeout-ms`: the longest wait for the gateway's answer, and what it may be set to (a day). */
export const TIMEOUT_MS_DEFAULT = 30_000;
export const TIMEOUT_MS_MAX = 86_400_000;
/** What an answer may need beyond the `timeout_secs` that bounds the work in the guest (design). */
export const JOB_MARGIN_MS = 10_000;
/**
 * A command without `timeout_secs` is ended so long before the call's own limit, and given this at least: what it wrote
 * comes back, where at the limit itself it would be lost.
 */
export const IMPLIED_MARGIN_MS = 5_000;
export const IMPLIED_TIMEOUT_MS_MIN = 1_000;
/**
 * What a VM's start may take beyond that: the first one after an update saves a golden before (cold boot limit of the
 * service). Its client is told of progress meanwhile.
 */
export const START_MARGIN_MS = 60_000;
/** What a tool server may take beyond that: it is dialled and greeted before it works. */
export const REACH_MARGIN_MS = 30_000;
/** Tools of a server that a text names where it cannot hold their definitions. */
export const NAMED_TOOLS_MAX = 128;
export const NAMED_TOOL_CHARS_MAX = 96;
/** Between two progress notifications. */
export const PROGRESS_INTERVAL_MS = 2_000;
/**
 * One line of stdin. The largest argument is a file's content of 16 Mi characters: this holds it with every other
 * character escaped. The SDK's own bound is 10 MiB, and going over it would end the connection.
 */
export const LINE_BYTES_MAX = 40 * 1024 * 1024;
/** After the end of stdin: how long answers under way that need no gateway may take. */
export const END_GRACE_MS = 500;
/** A token is 64 characters and perhaps a line's end; more of the file is not read. */
export const TOKEN_BYTES_MAX = 1_024;
/** What a reason, which may come from the other end, may say. */
export const REASON_CHARS_MAX = 600;
/** Ids of rules and asks, which may come from the other end as well. */
export const ID_CHARS_MAX = 160;
/** How much an answer repeats of a tool's name that is not known. */
export const NAME_CHARS_MAX = 64;
/** How long a client of 2026-07-28 may keep the list of tools, which is fixed in a build. */
export const LIST_TTL_MS = 3_600_000;
/** Calls that are carried out at once, and how many more may wait for their turn. */
export const CALLS_MAX = 32;
export const CALLS_WAITING_MAX = 1_024;
/** What the service takes of `x-capsem-client`; a longer one counts as none. */
export const CLIENT_NAME_CHARS_MAX = 128;
/** Clients that are told apart by a name of their own: each has connections of its own. */
export const CLIENT_NAMES_MAX = 8;
/** Of what is asked for, of a rule's reason, and of what a person writes beside the answer. */
export const ASK_TITLE_CHARS_MAX = 512;
export const ASK_REASON_CHARS_MAX = 512;
export const ASK_NOTE_CHARS_MAX = 200;
/** Asks of one call, one after the other: each is an answer of a person. */
export const ASK_ROUNDS_MAX = 8;
/** A form of a person who may be away: longer than an ask of the service waits (300 s). */
export const ASK_WAIT_MS_MAX = 600_000;
/** What seals a form's answer outlives its ask, so that who answers too late is told so, and no more than that. */
export const STATE_LIFE_SECS = 3_600;
export const STATE_KEY_BYTES = 32;
