import type { Database } from "./sqlite.ts";

/** The event that was judged, as it is stored: flat fields by their path. */
export interface StoredEvent {
  /** All of it; null when it is not there, too large to be shown, or no JSON. */
  readonly whole: Readonly<Record<string, unknown>> | null;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly characters: number;
}

const NOTHING: StoredEvent = { whole: null, fields: {}, characters: 0 };

/** Never throws for what a row holds: a body is any text. */
export function storedEvent(db: Database, hash: string): StoredEvent {
  const found = db.prepare("SELECT body FROM event_body_blobs WHERE hash = ? LIMIT 1").get(hash);
  return found === undefined ? NOTHING : parseStoredEvent(String(found[0]));
}

export function parseStoredEvent(body: string): StoredEvent {
  const whole = recordOf(parsed(body));
  return { whole, fields: recordOf(whole?.fields) ?? {}, characters: body.length };
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    // Not every body is an event.
    return null;
  }
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : null;
}
