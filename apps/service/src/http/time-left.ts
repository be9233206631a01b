import { apiFailure } from "@capsem/api";

export const TIME_LEFT_HEADER = "x-capsem-time-left-ms";

/** What a timer takes: one that is set beyond it fires at once. It is 24 days, longer than any request has. */
const TIMER_MS_MAX = 2_147_483_647;

/** The caller's deadline in milliseconds from now; null when it has none. */
export function parseTimeLeft(header: string | string[] | undefined): number | null {
  if (header === undefined) return null;
  const text = String(header);
  if (!/^[0-9]{1,20}$/.test(text) || Number(text) < 1) {
    throw apiFailure(
      "invalid_input",
      `Cannot read the request: ${TIME_LEFT_HEADER} is ${JSON.stringify(text.slice(0, 64))}, not a whole number of milliseconds above 0`,
    );
  }
  return Math.min(Number(text), TIMER_MS_MAX);
}
