import { COLUMNS } from "./schema.ts";
import type { Database } from "./sqlite.ts";
import type { Named } from "./words.ts";

/** The event that was judged, as it is stored: flat fields by their path. */
export interface StoredEvent {
  /** All of it; null when it is not there, too large to be shown, or no JSON. */
  readonly whole: Readonly<Record<string, unknown>> | null;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly characters: number;
}

const NOTHING: StoredEvent = { whole: null, fields: {}, characters: 0 };

/**
 * Of a decision: beside it in its row, or, where it is large or of an older version, among the bodies. Never throws for
 * what a row holds: a body is any text.
 */
export function storedEvent(
  db: Pick<Database, "prepare">,
  version: number,
  { event_id: id = null, event_hash: hash = null }: Named,
): StoredEvent {
  const inRow = version < EVENT_SINCE ? null : (db.prepare(IN_ROW).get(id, hash)?.[0] ?? null);
  const text = inRow ?? db.prepare(AMONG_BODIES).get(hash)?.[0] ?? null;
  return text === null ? NOTHING : parseStoredEvent(String(text));
}

const EVENT_SINCE = COLUMNS.security_decision_events.find(({ name }) => name === "event")?.since ?? 0;
const IN_ROW =
  "SELECT event FROM security_decision_events WHERE event_id = ? AND event_hash = ? AND event IS NOT NULL LIMIT 1";
const AMONG_BODIES = "SELECT body FROM event_body_blobs WHERE hash = ? LIMIT 1";

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
