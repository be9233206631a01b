/** How long the gatekeeper may take for one answer: it does one connect or one open, on local files. */
export const GATEKEEPER_TIMEOUT_MS = 2_000;

/** Requests that may wait for their turn: one connection of a client asks for one. */
export const GATEKEEPER_QUEUE_MAX = 1_024;

/** An answer is three bytes; more is no gatekeeper of ours. */
export const GATEKEEPER_ANSWER_BYTES = 3;
