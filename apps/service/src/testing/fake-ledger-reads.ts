import {
  type HistoryPage,
  LAYERS,
  type LedgerParams,
  type LedgerTable,
  type SecurityPage,
  type TimelineEntry,
  type TimelinePage,
  type VmStats,
  type VmStatsDetail,
} from "@capsem/api";
import { type FakeStore, fieldsOf } from "./fake-ledger-store.ts";

type Fields = ReturnType<typeof fieldsOf>;
type Layer = TimelineEntry["layer"];
type Cells = Fields[string];

const LAYER_OF: Partial<Record<LedgerTable, Layer>> = {
  exec_events: "exec",
  fs_events: "file",
  tool_calls: "tool",
  net_events: "net",
  lifecycle_events: "lifecycle",
  policy_mutations: "settings",
  security_ask_events: "ask",
};

interface Told {
  readonly table: LedgerTable;
  readonly fields: Fields;
}

function told(store: FakeStore): Told[] {
  return store.rows.map(({ row }) => ({ table: row[0] as LedgerTable, fields: fieldsOf(row) }));
}

const textOf = (value: Cells): string | null => (value == null ? null : String(value));
const numberOf = (value: Cells): number | null => (value == null ? null : Number(value));
const timeOf = (fields: Fields): string => new Date(Number(fields.time_ms)).toISOString();
const actionOf = (value: Cells): TimelineEntry["decision"] =>
  value === "ask" || value === "block" ? value : "allow";

/** Everything from a cursor on, a page long; the cursor is a place in the list. */
function paged<T>(all: readonly T[], { cursor, limit }: { cursor?: string | undefined; limit: number }) {
  const from = Number(cursor ?? 0);
  const next = from + limit < all.length ? String(from + limit) : null;
  return { found: all.slice(from, from + limit), next };
}

export function timelineOf(store: FakeStore, params: LedgerParams<"reader", "read.timeline">): TimelinePage {
  const layers = params.layers.length === 0 ? LAYERS : params.layers;
  const all = told(store).flatMap(({ table, fields }) => {
    const layer = LAYER_OF[table];
    if (layer === undefined || !layers.includes(layer)) return [];
    if (params.trace_id !== undefined && fields.trace_id !== params.trace_id) return [];
    if (params.since_ms !== undefined && Number(fields.time_ms) < params.since_ms) return [];
    return [entryOf(layer, fields)];
  });
  const { found, next } = paged(params.newest ? all.reverse() : all, params);
  return { entries: found, next };
}

function entryOf(layer: Layer, fields: Fields): TimelineEntry {
  const titles: Readonly<Record<Layer, string>> = {
    exec: String(fields.command),
    file: `${fields.act} ${fields.path}`,
    tool: `${fields.server_name}__${fields.tool_name}`,
    net: `${fields.method} ${fields.host}`,
    lifecycle: String(fields.action),
    settings: String(fields.key),
    ask: `ask ${fields.state}`,
    rule: String(fields.rule_id),
  };
  return {
    time: timeOf(fields),
    layer,
    event_id: String(fields.event_id),
    trace_id: textOf(fields.trace_id ?? null),
    requester: String(fields.requester),
    title: titles[layer],
    decision: actionOf(fields.decision ?? null),
    rule_id: textOf(fields.rule_id ?? null),
    reason: textOf(fields.reason ?? null),
    outcome: (textOf(fields.outcome ?? null) ?? null) as TimelineEntry["outcome"],
    duration_ms: numberOf(fields.duration_ms ?? null),
    details: {},
  };
}

export function historyOf(store: FakeStore, params: LedgerParams<"reader", "read.history">): HistoryPage {
  const { search, offset, limit } = params;
  const all = told(store)
    .filter(({ table, fields }) => table === "exec_events" && String(fields.command).includes(search ?? ""))
    .reverse();
  const entries = all.slice(offset, offset + limit).map(({ fields }) => ({
    time: timeOf(fields),
    event_id: String(fields.event_id),
    job_id: textOf(fields.job_id ?? null),
    command: String(fields.command),
    user: textOf(fields.user ?? null),
    cwd: textOf(fields.cwd ?? null),
    requester: String(fields.requester),
    decision: actionOf(fields.decision ?? null),
    rule_id: textOf(fields.rule_id ?? null),
    reason: textOf(fields.reason ?? null),
    outcome: textOf(fields.outcome ?? null) as HistoryPage["entries"][number]["outcome"],
    exit_code: numberOf(fields.exit_code ?? null),
    signal: numberOf(fields.signal ?? null),
    duration_ms: numberOf(fields.duration_ms ?? null),
    stdout_bytes: numberOf(fields.stdout_bytes ?? null),
    stderr_bytes: numberOf(fields.stderr_bytes ?? null),
  }));
  return { entries, total: all.length };
}

export function decisionsOf(
  store: FakeStore,
  params: LedgerParams<"reader", "read.decisions">,
): SecurityPage {
  const rows = told(store);
  const bodies = new Map(
    rows.filter(({ table }) => table === "event_body_blobs").map(({ fields }) => [fields.hash, fields.body]),
  );
  const all = rows
    .filter(({ table, fields }) => {
      if (table !== "security_decision_events") return false;
      if (params.since_ms !== undefined && Number(fields.time_ms) < params.since_ms) return false;
      return (["action", "type", "rule_id"] as const).every(
        (name) => params[name] === undefined || fields[name] === params[name],
      );
    })
    .reverse();
  const { found, next } = paged(all, params);
  const events = found.map(({ fields }) => ({
    time: timeOf(fields),
    event_id: String(fields.event_id),
    trace_id: textOf(fields.trace_id ?? null),
    requester: String(fields.requester),
    client: textOf(fields.client ?? null),
    type: String(fields.type),
    action: actionOf(fields.action ?? null),
    rule_id: String(fields.rule_id),
    reason: String(fields.reason),
    detection: String(fields.detection),
    policy_digest: String(fields.policy_digest),
    matched: rows
      .filter((row) => row.table === "security_rule_events" && row.fields.event_id === fields.event_id)
      .map((row) => ({
        rule_id: String(row.fields.rule_id),
        action: String(row.fields.action),
        priority: Number(row.fields.priority),
        detection: String(row.fields.detection),
        fault: textOf(row.fields.fault ?? null),
      })),
    event: JSON.parse(String(fields.event ?? bodies.get(fields.event_hash ?? null) ?? "{}")) as Record<
      string,
      unknown
    >,
    is_redacted: fields.is_redacted === 1,
  }));
  return { events, next };
}

export function statsOf(ledger: string, store: FakeStore): VmStats {
  const rows = told(store);
  const of = (table: LedgerTable) => rows.filter((row) => row.table === table);
  const times = rows
    .filter(({ fields }) => typeof fields.time_ms === "number")
    .map(({ fields }) => timeOf(fields));
  const decided = (action: string) =>
    of("security_decision_events").filter(({ fields }) => fields.action === action).length;
  return {
    vm_id: ledger as VmStats["vm_id"],
    rows: rows.length,
    bytes: store.bytes,
    first_time: times[0] ?? null,
    last_time: times.at(-1) ?? null,
    decisions: { allow: decided("allow"), ask: decided("ask"), block: decided("block") },
    commands: of("exec_events").length,
    files: of("fs_events").length,
    tools: of("tool_calls").length,
    open: store.open.size,
  };
}

export function detailOf(ledger: string, store: FakeStore): VmStatsDetail {
  const rows = told(store);
  const counted = (name: string, from: readonly Told[]) => {
    const counts = new Map<string, number>();
    for (const { fields } of from) {
      const key = textOf(fields[name] ?? null);
      if (key !== null) counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    return counts;
  };
  const acts = rows.filter(({ fields }) => fields.outcome !== undefined);
  const decisions = rows.filter(({ table }) => table === "security_decision_events");
  const ruled = rows.filter(({ table }) => table === "security_rule_events");
  const asks = counted("state", rows);
  const ofAct = (act: string) => rows.filter(({ fields }) => fields.act === act);
  const sum = (name: string, from: readonly Told[]) =>
    from.reduce((total, { fields }) => total + Number(fields[name] ?? 0), 0);
  const execs = rows.filter(({ table }) => table === "exec_events");
  const took = execs.map(({ fields }) => Number(fields.duration_ms ?? 0)).sort((a, b) => a - b);
  return {
    ...statsOf(ledger, store),
    outcomes: Object.fromEntries(counted("outcome", acts)),
    types: [...counted("type", decisions).keys()].map((type) => {
      const actions = counted(
        "action",
        decisions.filter(({ fields }) => fields.type === type),
      );
      return {
        type,
        allow: actions.get("allow") ?? 0,
        ask: actions.get("ask") ?? 0,
        block: actions.get("block") ?? 0,
      };
    }),
    rules: [...counted("rule_id", ruled)].map(([ruleId, matched]) => {
      const mine = ruled.filter(({ fields }) => fields.rule_id === ruleId);
      const last = mine.at(-1)?.fields ?? {};
      return {
        rule_id: ruleId,
        matched,
        won: mine.filter(({ fields }) => fields.has_won === 1).length,
        last_time: timeOf(last),
        detection: String(last.detection),
      };
    }),
    exec: {
      count: execs.length,
      p50_ms: took[Math.floor(took.length / 2)] ?? 0,
      p99_ms: took.at(-1) ?? 0,
      max_ms: took.at(-1) ?? 0,
      failed: execs.filter(({ fields }) => fields.outcome === "failed").length,
      stdout_bytes: sum("stdout_bytes", execs),
      stderr_bytes: sum("stderr_bytes", execs),
    },
    tools_by_name: [],
    file: {
      imports: ofAct("import").length,
      exports: ofAct("export").length,
      bytes_in: sum("bytes", ofAct("import")),
      bytes_out: sum("bytes", ofAct("export")),
    },
    asks: {
      made: asks.get("pending") ?? 0,
      approved: asks.get("approved") ?? 0,
      denied: asks.get("denied") ?? 0,
      expired: asks.get("expired") ?? 0,
    },
    requesters: [...counted("requester", acts)].map(([requester, count]) => ({ requester, acts: count })),
  };
}
