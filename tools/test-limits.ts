/** Less than a test's own limit, so that a wait in vain says what it waited for. */
export const WAIT_MS = 15_000;
