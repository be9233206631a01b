import type { SecurityEntry, SecurityPage } from "@capsem/api";
import { LEDGER_LIMITS } from "./limits.ts";
import { checkLimit, pageOf, parseCursor } from "./page.ts";
import type { LedgerReader } from "./reader.ts";
import type { Cell } from "./sqlite.ts";
import { storedEvent } from "./stored-event.ts";
import { conditions, firstSince } from "./timeline.ts";
import { isoTime, type Named, named, oneOf, requesterOf, selected, textOrNull } from "./words.ts";

export interface DecisionsQuery {
  readonly since_ms?: number | undefined;
  readonly cursor?: string | undefined;
  readonly limit: number;
  readonly action?: string | undefined;
  readonly type?: string | undefined;
  readonly rule_id?: string | undefined;
}

/** Decisions with the event that was judged and every rule that matched, the newest first. */
export function readDecisions(reader: LedgerReader, query: DecisionsQuery): SecurityPage {
  const limit = checkLimit(query.limit);
  const after = parseCursor(query.cursor);
  return reader.atOnce(() => {
    const sinceMs = query.since_ms ?? null;
    const window = { after, sinceMs, traceId: null, newest: true, from: firstSince(reader, sinceMs) };
    const { where, order, values } = conditions(window, "d");
    const filters = (["action", "type", "rule_id"] as const).filter((name) => query[name] !== undefined);
    const { sql, names } = selected("security_decision_events", "d", "");
    const rows = reader
      .prepare(
        `SELECT d.row_id, ${sql} FROM security_decision_events d
         WHERE 1 ${filters.map((name) => `AND d.${name} = ?`).join(" ")} ${where} ORDER BY ${order} LIMIT ?`,
      )
      .iterate(...filters.map((name) => query[name] as Cell), ...values, limit + 1);
    try {
      const page = pageOf(entries(reader, rows, names), limit);
      return { events: page.entries, next: page.next };
    } finally {
      rows.return?.();
    }
  });
}

/** Made one by one: a page of large events ends long before its last row. */
function* entries(reader: LedgerReader, rows: Iterable<Cell[]>, names: readonly string[]) {
  for (const row of rows) yield { n: Number(row[0]), entry: entryOf(reader, named(names, row.slice(1))) };
}

function entryOf(reader: LedgerReader, decision: Named): SecurityEntry {
  return {
    time: isoTime(decision.time_ms ?? 0),
    event_id: String(decision.event_id),
    trace_id: textOrNull(decision.trace_id),
    requester: requesterOf(decision),
    client: textOrNull(decision.client),
    type: String(decision.type),
    action: oneOf(["allow", "ask", "block"], decision.action, "decision"),
    rule_id: String(decision.rule_id),
    reason: String(decision.reason),
    detection: String(decision.detection),
    policy_digest: String(decision.policy_digest),
    matched: matchedRules(reader, decision.event_id ?? null),
    event: eventOf(reader, decision),
    is_redacted: decision.is_redacted === 1,
  };
}

function matchedRules(reader: LedgerReader, eventId: Cell): SecurityEntry["matched"] {
  return reader
    .prepare(
      `SELECT rule_id, action, priority, detection, fault FROM security_rule_events WHERE event_id = ?
       ORDER BY row_id LIMIT ${LEDGER_LIMITS.groupsMax}`,
    )
    .all(eventId)
    .map(([ruleId, action, priority, detection, fault]) => ({
      rule_id: String(ruleId),
      action: String(action),
      priority: Number(priority),
      detection: String(detection),
      fault: textOrNull(fault),
    }));
}

/** One that would be a page by itself is named instead: the export has it. */
function eventOf(reader: LedgerReader, decision: Named): SecurityEntry["event"] {
  const event = storedEvent(reader, reader.version, decision);
  if (event.whole !== null && event.characters <= LEDGER_LIMITS.eventCharactersMax) return { ...event.whole };
  return { event_hash: String(decision.event_hash), characters: event.characters, is_left_out: true };
}
