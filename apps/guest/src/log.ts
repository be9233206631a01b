import { GUEST_LIMITS } from "./limits.ts";

export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

/**
 * JSON lines for the console. Never give it a secret, the value of an environment entry, or the text of a
 * command. It bounds itself: a hostile workload or host can cause many events, and the console is slow.
 */
export interface Log {
  info(event: string, fields?: LogFields): void;
  warn(event: string, fields?: LogFields): void;
  error(event: string, fields?: LogFields): void;
}

export function createLog(write: (line: string) => void, nowMs: () => number): Log {
  let budget: number = GUEST_LIMITS.logBurst;
  let filledMs = nowMs();
  let dropped = 0;

  function put(level: string, event: string, fields: LogFields): void {
    const now = nowMs();
    const refill = ((now - filledMs) / 1000) * GUEST_LIMITS.logLinesPerSecond;
    if (refill >= 1) {
      budget = Math.min(GUEST_LIMITS.logBurst, budget + Math.floor(refill));
      filledMs = now;
    }
    if (budget < 1) {
      dropped += 1;
      return;
    }
    budget -= 1;
    const line = JSON.stringify({
      ms: Math.round(now),
      level,
      event,
      ...fields,
      ...(dropped > 0 ? { dropped } : {}),
    });
    dropped = 0;
    write(`${line.length > GUEST_LIMITS.logLineBytesMax ? shorten(level, event, now) : line}\n`);
  }

  return {
    info: (event, fields = {}) => put("info", event, fields),
    warn: (event, fields = {}) => put("warn", event, fields),
    error: (event, fields = {}) => put("error", event, fields),
  };
}

function shorten(level: string, event: string, now: number): string {
  return JSON.stringify({ ms: Math.round(now), level, event: event.slice(0, 64), shortened: true });
}
