// Rows as a service sends them, for tests and benchmarks.
import { LEDGER_TABLES, type LedgerRow, type LedgerTable } from "@capsem/api";
import { sha256 } from "../chain.ts";

export type WireRow = (string | number | null)[];

/** A row of a table: what is not said is null, 0 or empty. */
export function row<T extends LedgerTable>(table: T, values: Partial<LedgerRow<T>>): WireRow {
  const given = values as Readonly<Record<string, unknown>>;
  return [
    table,
    ...Object.entries(LEDGER_TABLES[table].columns).map(([name, type]) => {
      const value = given[name];
      if (typeof value === "boolean") return value ? 1 : 0;
      if (value !== undefined) return value as string | number | null;
      if (type.endsWith("?")) return null;
      return type === "text" ? "" : type === "json" ? "[]" : 0;
    }),
  ];
}

export function eventId(n: number): string {
  return n.toString(16).padStart(12, "0");
}

export interface ActOptions {
  readonly n: number;
  readonly command?: string;
  readonly action?: "allow" | "ask" | "block";
  readonly outcome?: string;
  readonly detection?: string;
  readonly trace?: string | null;
  readonly timeMs?: number;
  readonly body?: string;
  readonly stdoutPreview?: string;
  /** The event stands beside its decision, as small ones do, and not among the bodies. */
  readonly isInRow?: boolean;
}

const BASE_MS = 1_750_000_000_000;

/** The stored event, the decision and its rule: what begins an act of exec. */
export function intent(options: ActOptions): WireRow[] {
  const { n, command = `echo ${n}`, action = "allow", detection = "none" } = options;
  const event_id = eventId(n);
  const time_ms = options.timeMs ?? BASE_MS + n;
  const body =
    options.body ??
    JSON.stringify({
      type: "process.exec",
      event_id,
      fields: { "process.command": command, "process.exec.id": `job_${n}`, "process.exec.user": "root" },
    });
  const event_hash = sha256(body);
  const blob = row("event_body_blobs", {
    hash: event_hash,
    kind: "event",
    original_bytes: body.length,
    body,
  });
  return [
    ...(options.isInRow === true ? [] : [blob]),
    row("security_decision_events", {
      ...{ event_id, time_ms, trace_id: options.trace ?? null, requester: "user uid 1000" },
      ...{ type: "process.exec", action, rule_id: "default.exec", reason: "exec is allowed" },
      ...{ detection, policy_digest: "p", event_hash, is_redacted: false },
      event: options.isInRow === true ? body : null,
    }),
    row("security_rule_events", {
      ...{ event_id, time_ms, rule_id: "default.exec", action, priority: 1001 },
      ...{ detection, has_won: true, rule: "{}", event_hash },
    }),
  ];
}

/** The row that ends it. */
export function ending(options: ActOptions): WireRow {
  const { n, command = `echo ${n}`, action = "allow", outcome = "done" } = options;
  return row("exec_events", {
    ...{
      event_id: eventId(n),
      time_ms: (options.timeMs ?? BASE_MS + n) + 5,
      trace_id: options.trace ?? null,
    },
    ...{ requester: "user uid 1000", job_id: `job_${n}`, kind: "exec", command, user: "root", cwd: "/" },
    ...{ exit_code: 0, stdout_bytes: 6, stderr_bytes: 0, stdout_preview: options.stdoutPreview ?? null },
    ...{ decision: action, rule_id: "default.exec", reason: "exec is allowed" },
    ...{ outcome: outcome as "done", duration_ms: (n % 100) + 1 },
  });
}

export function act(options: ActOptions): WireRow[] {
  return [...intent(options), ending(options)];
}
