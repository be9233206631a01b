import { type HistoryEntry, type HistoryPage, OUTCOMES } from "@capsem/api";
import { fieldText } from "./act-title.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { checkLimit, pageOf } from "./page.ts";
import type { LedgerReader } from "./reader.ts";
import { decisionOf, endOf } from "./timeline.ts";
import { openFields } from "./timeline-entry.ts";
import {
  countOrNull,
  cutText,
  isoTime,
  type Named,
  numberOrNull,
  oneOf,
  requesterOf,
  textOrNull,
} from "./words.ts";

export interface HistoryQuery {
  readonly limit: number;
  readonly offset: number;
  readonly search?: string | undefined;
}

/** Commands that were asked for, the newest first; those that still run, too. */
export function readHistory(reader: LedgerReader, query: HistoryQuery): HistoryPage {
  const limit = checkLimit(query.limit);
  return reader.atOnce(() => {
    const { total, numbers } =
      query.search === undefined
        ? all(reader, limit, query.offset)
        : found(reader, query.search, limit, query.offset);
    const placed = numbers.flatMap((n) => {
      const entry = entryAt(reader, n);
      return entry === null ? [] : [{ n, entry }];
    });
    return { entries: pageOf(placed, limit).entries, total };
  });
}

interface Numbers {
  readonly total: number;
  /** Of decisions. */
  readonly numbers: readonly number[];
}

const IS_EXEC = "type = 'process.exec'";

function all(reader: LedgerReader, limit: number, offset: number): Numbers {
  return {
    total: reader.number(`SELECT count(*) FROM security_decision_events WHERE ${IS_EXEC}`),
    numbers: reader
      .prepare(
        `SELECT row_id FROM security_decision_events WHERE ${IS_EXEC} ORDER BY row_id DESC LIMIT ? OFFSET ?`,
      )
      .all(limit, offset)
      .map(([n]) => Number(n)),
  };
}

/** The commands of acts that still run stand in their events alone: few, and looked at one by one. */
function found(reader: LedgerReader, search: string, limit: number, offset: number): Numbers {
  const running = reader
    .prepare("SELECT n, event_id FROM open_acts WHERE tbl = 'exec_events'")
    .all()
    .filter(([, eventId]) => {
      const decision = decisionOf(reader, eventId);
      return decision !== null && commandOf(reader, decision, null).includes(search);
    })
    .map(([n]) => n);
  const matching = `SELECT d.row_id AS n FROM exec_events e JOIN security_decision_events d ON d.event_id = e.event_id
    WHERE d.${IS_EXEC} AND instr(CAST(e.command AS TEXT), ?1) > 0 UNION SELECT value FROM json_each(?2)`;
  const open = JSON.stringify(running);
  return {
    total: reader.number(`SELECT count(*) FROM (${matching})`, search, open),
    numbers: reader
      .prepare(`SELECT n FROM (${matching}) ORDER BY n DESC LIMIT ?3 OFFSET ?4`)
      .all(search, open, limit, offset)
      .map(([n]) => Number(n)),
  };
}

function entryAt(reader: LedgerReader, n: number): HistoryEntry | null {
  const eventId = reader
    .prepare("SELECT event_id FROM security_decision_events WHERE row_id = ?")
    .get(n)?.[0];
  const decision = decisionOf(reader, eventId);
  if (decision === null) return null;
  const end = endOf(reader, "exec_events", eventId);
  const fields = end === null ? openFields(reader, decision) : {};
  return {
    time: isoTime(decision.time_ms ?? 0),
    event_id: String(decision.event_id),
    job_id: textOrNull(end === null ? fieldText(fields, "process.exec.id") : end.job_id),
    command: cutText(commandOf(reader, decision, end), LEDGER_LIMITS.commandCharactersMax),
    user: textOrNull(end === null ? fieldText(fields, "process.exec.user") : end.user),
    cwd: textOrNull(end === null ? fieldText(fields, "process.exec.cwd") : end.cwd),
    requester: requesterOf(decision),
    decision: oneOf(["allow", "ask", "block"], decision.action, "decision"),
    rule_id: textOrNull(decision.rule_id),
    reason: textOrNull(decision.reason),
    outcome: end === null ? null : oneOf(OUTCOMES, end.outcome, "outcome"),
    exit_code: numberOrNull(end?.exit_code),
    signal: numberOrNull(end?.signal),
    duration_ms: countOrNull(end?.duration_ms),
    stdout_bytes: countOrNull(end?.stdout_bytes),
    stderr_bytes: countOrNull(end?.stderr_bytes),
  };
}

function commandOf(reader: LedgerReader, decision: Named, end: Named | null): string {
  return end === null
    ? (fieldText(openFields(reader, decision), "process.command") ?? "")
    : String(end.command);
}
