import type { VmStatsDetail } from "@capsem/api";
import { LEDGER_LIMITS } from "./limits.ts";
import type { LedgerReader } from "./reader.ts";
import type { Sliced } from "./slices.ts";
import type { Cell } from "./sqlite.ts";
import { REFUSED_UNJUDGED, readStats } from "./stats.ts";
import { TimeHistogram } from "./time-histogram.ts";
import { ToolCounts } from "./tool-counts.ts";
import { isoTime, requesterOf } from "./words.ts";

const END_TABLES = [
  "exec_events",
  "fs_events",
  "lifecycle_events",
  "policy_mutations",
  "tool_calls",
  "net_events",
] as const;

/** The same and more, counted over every row: in slices, since it takes as long as the ledger is large. */
export function* readDetail(reader: LedgerReader): Sliced<VmStatsDetail> {
  const stats = readStats(reader);
  const counts = new Counts();
  for (let from = 0; from < stats.rows; from += LEDGER_LIMITS.sliceRows) {
    counts.add(reader, from, Math.min(stats.rows, from + LEDGER_LIMITS.sliceRows));
    yield;
  }
  return { ...stats, ...counts.result() };
}

interface RuleCount {
  matched: number;
  won: number;
  lastMs: number;
  detection: string;
}

class Counts {
  readonly #outcomes = new Map<string, number>();
  readonly #types = new Map<string, { allow: number; ask: number; block: number }>();
  readonly #rules = new Map<string, RuleCount>();
  readonly #requesters = new Map<string, number>();
  readonly #times = new TimeHistogram();
  readonly #exec = { failed: 0, stdout_bytes: 0, stderr_bytes: 0 };
  readonly #file = { imports: 0, exports: 0, bytes_in: 0, bytes_out: 0 };
  readonly #tools = new ToolCounts();
  readonly #asks = { made: 0, approved: 0, denied: 0, expired: 0 };

  /** Rows after `from`, up to `end`. */
  add(reader: LedgerReader, from: number, end: number): void {
    const rows = (sql: string) =>
      reader.prepare(sql.replace("@slice", "row_id > ?1 AND row_id <= ?2")).all(from, end);
    for (const [type, action, count] of rows(
      "SELECT type, action, count(*) FROM security_decision_events WHERE @slice GROUP BY type, action",
    )) {
      this.#addType(String(type), String(action), Number(count));
    }
    for (const [requester, token_id, count] of rows(
      `SELECT requester, token_id, count(*) FROM security_decision_events WHERE @slice
       GROUP BY requester, token_id`,
    )) {
      add(
        this.#requesters,
        requesterOf({ requester: requester ?? "", token_id: token_id ?? null }),
        Number(count),
      );
    }
    for (const rule of rows(
      // The other columns are those of the row with the largest number.
      `SELECT rule_id, count(*), sum(has_won), time_ms, detection, max(row_id) FROM security_rule_events
       WHERE @slice GROUP BY rule_id`,
    )) {
      this.#addRule(rule);
    }
    for (const table of END_TABLES) {
      for (const [outcome, count] of rows(
        `SELECT outcome, count(*) FROM ${table} WHERE @slice GROUP BY outcome`,
      )) {
        add(this.#outcomes, String(outcome), Number(count));
      }
    }
    for (const [kind, count] of rows(
      `SELECT e.kind, count(*) FROM ${REFUSED_UNJUDGED} AND @slice GROUP BY e.kind`,
    )) {
      this.#addType(String(kind), "block", Number(count));
    }
    this.#addExec(rows);
    this.#tools.add(rows);
    for (const [act, count, bytes] of rows(
      "SELECT act, count(*), sum(bytes) FROM fs_events WHERE @slice AND outcome = 'done' GROUP BY act",
    )) {
      this.#addFile(String(act), Number(count), Math.max(0, Number(bytes)));
    }
    for (const [state, count] of rows(
      "SELECT state, count(*) FROM security_ask_events WHERE @slice GROUP BY state",
    )) {
      this.#addAsk(String(state), Number(count));
    }
  }

  result(): Omit<VmStatsDetail, keyof ReturnType<typeof readStats>> {
    const most = <T>(map: ReadonlyMap<string, T>, weight: (value: T) => number): [string, T][] =>
      [...map]
        .sort(([a, x], [b, y]) => weight(y) - weight(x) || (a < b ? -1 : 1))
        .slice(0, LEDGER_LIMITS.groupsMax);
    const times = this.#times;
    return {
      outcomes: Object.fromEntries(this.#outcomes),
      types: most(this.#types, ({ allow, ask, block }) => allow + ask + block).map(([type, count]) => ({
        type,
        ...count,
      })),
      rules: most(this.#rules, ({ matched }) => matched).map(([rule_id, { lastMs, ...rule }]) => ({
        rule_id,
        ...rule,
        last_time: isoTime(lastMs),
      })),
      exec: {
        count: times.count,
        p50_ms: times.quantileMs(0.5),
        p99_ms: times.quantileMs(0.99),
        max_ms: times.maxMs,
        ...this.#exec,
      },
      tools_by_name: this.#tools.result(),
      file: this.#file,
      asks: this.#asks,
      requesters: most(this.#requesters, (count) => count).map(([requester, acts]) => ({ requester, acts })),
    };
  }

  #addType(type: string, action: string, count: number): void {
    const known = this.#types.get(type) ?? { allow: 0, ask: 0, block: 0 };
    if (action === "allow" || action === "ask" || action === "block") known[action] += count;
    this.#types.set(type, known);
  }

  #addRule([ruleId, matched, won, time, detection]: readonly Cell[]): void {
    const known = this.#rules.get(String(ruleId)) ?? { matched: 0, won: 0, lastMs: 0, detection: "" };
    known.matched += Number(matched);
    known.won += Number(won);
    known.lastMs = Number(time);
    known.detection = String(detection);
    this.#rules.set(String(ruleId), known);
  }

  #addExec(rows: (sql: string) => Cell[][]): void {
    for (const [duration, failed, out, err] of rows(
      `SELECT duration_ms, outcome = 'failed' OR coalesce(exit_code, 0) <> 0 OR coalesce(signal, 0) <> 0,
         stdout_bytes, stderr_bytes FROM exec_events WHERE @slice`,
    )) {
      // What never ran took no time.
      if (typeof duration === "number") this.#times.add(Math.max(0, duration));
      this.#exec.failed += Number(failed);
      this.#exec.stdout_bytes += Math.max(0, Number(out));
      this.#exec.stderr_bytes += Math.max(0, Number(err));
    }
  }

  #addFile(act: string, count: number, bytes: number): void {
    if (act === "import") {
      this.#file.imports += count;
      this.#file.bytes_in += bytes;
    } else if (act === "export") {
      this.#file.exports += count;
      this.#file.bytes_out += bytes;
    }
  }

  #addAsk(state: string, count: number): void {
    if (state === "pending") this.#asks.made += count;
    else if (state === "approved" || state === "denied" || state === "expired") this.#asks[state] += count;
  }
}

function add(map: Map<string, number>, name: string, count: number): void {
  map.set(name, (map.get(name) ?? 0) + count);
}
