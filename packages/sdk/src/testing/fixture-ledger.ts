import type {
  DecisionInfo,
  HistoryEntry,
  LedgerInfo,
  SecurityEntry,
  TimelineEntry,
  VerifyResult,
} from "@capsem/api";
import { apiFailure } from "@capsem/api";

export interface FixtureAct {
  readonly command: string;
  readonly requester: string;
  readonly client: string | null;
  readonly traceId: string | null;
  readonly decision: Pick<DecisionInfo, "action" | "rule_id" | "reason">;
  outcome: TimelineEntry["outcome"];
  exitCode: number | null;
}

interface Row extends FixtureAct {
  readonly time: string;
  readonly eventId: string;
}

interface Ledger {
  name: string | null;
  hasVm: boolean;
  readonly rows: Row[];
  isBroken: boolean;
  archived: number;
}

const START_MS = Date.parse("2025-01-02T03:05:00.000Z");
const DURATION_MS = 1_500;

/** What acts leave: a ledger for each VM, which stays when its VM goes. */
export class FixtureLedgers {
  readonly all = new Map<string, Ledger>();
  #count = 0;

  open(id: string, name: string | null): void {
    this.all.set(id, { name, hasVm: true, rows: [], isBroken: false, archived: 0 });
  }

  close(id: string): void {
    const ledger = this.all.get(id);
    if (ledger !== undefined) ledger.hasVm = false;
  }

  append(id: string, act: FixtureAct): Row {
    this.#count += 1;
    const row = {
      ...act,
      time: new Date(START_MS + this.#count * 1000).toISOString(),
      eventId: this.#count.toString(16).padStart(12, "0"),
    };
    this.get(id).rows.push(row);
    return row;
  }

  get(id: string): Ledger {
    const ledger = this.all.get(id);
    if (ledger === undefined) throw apiFailure("ledger_not_found", `Cannot read ledger ${id}: there is none`);
    return ledger;
  }
}

export function timelineOf(row: Row): TimelineEntry {
  return {
    time: row.time,
    layer: "exec",
    event_id: row.eventId,
    trace_id: row.traceId,
    requester: row.requester,
    title: row.command,
    decision: row.decision.action,
    rule_id: row.decision.rule_id,
    reason: row.decision.reason,
    outcome: row.outcome,
    duration_ms: row.outcome === null ? null : DURATION_MS,
    details: { exit_code: row.exitCode },
  };
}

export function historyOf(row: Row): HistoryEntry {
  return {
    time: row.time,
    event_id: row.eventId,
    job_id: null,
    command: row.command,
    user: "user",
    cwd: null,
    requester: row.requester,
    decision: row.decision.action,
    rule_id: row.decision.rule_id,
    reason: row.decision.reason,
    outcome: row.outcome,
    exit_code: row.exitCode,
    signal: null,
    duration_ms: row.outcome === null ? null : DURATION_MS,
    stdout_bytes: 0,
    stderr_bytes: 0,
  };
}

export function securityOf(row: Row): SecurityEntry {
  const { action, rule_id, reason } = row.decision;
  return {
    time: row.time,
    event_id: row.eventId,
    trace_id: row.traceId,
    requester: row.requester,
    client: row.client,
    type: "process.exec",
    action,
    rule_id,
    reason,
    detection: "none",
    policy_digest: "fixture",
    matched: [{ rule_id, action, priority: 10, detection: "none", fault: null }],
    event: { type: "process.exec", fields: { "process.command": row.command } },
    is_redacted: false,
  };
}

export function ledgerInfoOf([id, ledger]: [string, Ledger]): LedgerInfo {
  return {
    vm_id: id,
    name: ledger.name,
    has_vm: ledger.hasVm,
    rows: ledger.rows.length,
    bytes: ledger.rows.length * 512,
    first_time: ledger.rows[0]?.time ?? null,
    last_time: ledger.rows.at(-1)?.time ?? null,
    archived: ledger.archived,
  };
}

export function verifyOf(id: string, ledger: Ledger): VerifyResult {
  const fault = {
    kind: "altered",
    row: 2,
    table: "exec_events",
    event_id: "000000000002",
    message: "row 2 of exec_events is not what was written",
  } as const;
  return {
    vm_id: id,
    is_whole: !ledger.isBroken,
    rows: ledger.rows.length,
    signed_rows: ledger.rows.length,
    head: "0".repeat(64),
    fault: ledger.isBroken ? fault : null,
  };
}

export function statsOf(id: string, { rows }: Ledger) {
  const count = (action: string) => rows.filter(({ decision }) => decision.action === action).length;
  return {
    vm_id: id,
    rows: rows.length,
    bytes: rows.length * 512,
    first_time: rows[0]?.time ?? null,
    last_time: rows.at(-1)?.time ?? null,
    decisions: { allow: count("allow"), ask: count("ask"), block: count("block") },
    commands: rows.length,
    files: 0,
    tools: 0,
    open: rows.filter(({ outcome }) => outcome === null).length,
  };
}

export function statsDetailOf(id: string, ledger: Ledger) {
  const { rows } = ledger;
  const { decisions, ...counts } = statsOf(id, ledger);
  const times = { count: rows.length, p50_ms: DURATION_MS, p99_ms: DURATION_MS, max_ms: DURATION_MS };
  const ids = [...new Set(rows.map(({ decision }) => decision.rule_id))];
  return {
    ...counts,
    decisions,
    outcomes: { done: rows.filter(({ outcome }) => outcome === "done").length },
    types: [{ type: "process.exec", ...decisions }],
    rules: ids.map((ruleId) => {
      const won = rows.filter(({ decision }) => decision.rule_id === ruleId);
      const last = won.at(-1)?.time ?? "";
      return { rule_id: ruleId, matched: won.length, won: won.length, last_time: last, detection: "none" };
    }),
    tools_by_name: [],
    exec: { ...times, failed: 0, stdout_bytes: 0, stderr_bytes: 0 },
    file: { imports: 0, exports: 0, bytes_in: 0, bytes_out: 0 },
    asks: { made: decisions.ask, approved: decisions.ask, denied: 0, expired: 0 },
    requesters: [{ requester: "user uid 1000", acts: rows.length }],
  };
}
