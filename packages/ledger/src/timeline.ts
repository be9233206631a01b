import { ENDS_IN, LAYERS, type LedgerTable, type TimelineEntry } from "@capsem/api";
import { ledgerFailure } from "./error.ts";
import { checkLimit, type Placed, pageOf, parseCursor } from "./page.ts";
import type { LedgerReader } from "./reader.ts";
import { NOTABLE_RULE } from "./schema.ts";
import type { Cell } from "./sqlite.ts";
import { actEntry, askEntry, ruleEntry } from "./timeline-entry.ts";
import { type Named, named, selected } from "./words.ts";

export type Layer = (typeof LAYERS)[number];

export interface TimelineQuery {
  readonly since_ms?: number | undefined;
  readonly trace_id?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit: number;
  /** None: all. */
  readonly layers: readonly string[];
  readonly newest: boolean;
}

/** What of the chain a page is about. */
interface Window {
  /** Numbers after this one, or before it where the newest come first; null: from the end. */
  readonly after: number | null;
  readonly sinceMs: number | null;
  readonly traceId: string | null;
  readonly newest: boolean;
  /** The last number that is looked at, in the order of reading. */
  readonly end?: number | null;
  /** No number below this one fits. */
  readonly from?: number | null;
}

const ACT_LAYERS = {
  exec: "exec_events",
  file: "fs_events",
  tool: "tool_calls",
  net: "net_events",
  lifecycle: "lifecycle_events",
  settings: "policy_mutations",
} as const satisfies Partial<Record<Layer, LedgerTable>>;
export type ActLayer = keyof typeof ACT_LAYERS;
const ACT_LAYER_NAMES = Object.keys(ACT_LAYERS) as readonly ActLayer[];

/** One page of everything that was done, in the order in which it was recorded: an act stands where it was decided. */
export function readTimeline(reader: LedgerReader, query: TimelineQuery) {
  const limit = checkLimit(query.limit);
  const layers = parseLayers(query.layers);
  const window: Window = {
    after: parseCursor(query.cursor),
    sinceMs: query.since_ms ?? null,
    traceId: query.trace_id ?? null,
    newest: query.newest,
  };
  return reader.atOnce(() => {
    const told = first(
      merge(
        layers.flatMap((layer) => sourcesOf(reader, layer, window)),
        window.newest,
      ),
      limit + 1,
    );
    // What no decision began is rare, and found only by looking at every end: at those of this page.
    const end = told[limit]?.n ?? null;
    const strays = ACT_LAYER_NAMES.filter((layer) => layers.includes(layer)).map((layer) =>
      undecided(reader, layer, ACT_LAYERS[layer], { ...window, end }),
    );
    return pageOf(first(merge([told.values(), ...strays], window.newest), limit + 1), limit);
  });
}

/** No more than so many; the rest is not read. */
function first(source: Source, count: number): Placed<TimelineEntry>[] {
  const taken: Placed<TimelineEntry>[] = [];
  try {
    while (taken.length < count) {
      const { done, value } = source.next();
      if (done === true) break;
      taken.push(value);
    }
    return taken;
  } finally {
    source.return();
  }
}

function parseLayers(words: readonly string[]): readonly Layer[] {
  if (words.length === 0) return LAYERS;
  const unknown = words.find((word) => !LAYERS.some((layer) => layer === word));
  if (unknown !== undefined) {
    const known = LAYERS.join(", ");
    throw ledgerFailure("invalid_input", `Cannot read layer ${JSON.stringify(unknown)}: there are ${known}`);
  }
  return LAYERS.filter((layer) => words.includes(layer));
}

type Source = Generator<Placed<TimelineEntry>, void, void>;
/** A source, or what was read of some already. */
type Ordered = Iterator<Placed<TimelineEntry>, void>;

function sourcesOf(reader: LedgerReader, layer: Layer, window: Window): Source[] {
  if (layer === "ask") return [asks(reader, window)];
  if (layer === "rule") return [rules(reader, window)];
  const table = ACT_LAYERS[layer];
  const types = Object.keys(ENDS_IN).filter((type) => ENDS_IN[type] === table);
  return types.map((type) => decided(reader, layer, table, type, window));
}

const DECISION = selected("security_decision_events", "d", "");

/**
 * Acts of one type, from their decision on; with their end, once they have one. The type stands in the statement: two
 * that are read side by side are two statements.
 */
function* decided(
  reader: LedgerReader,
  layer: ActLayer,
  table: LedgerTable,
  type: string,
  window: Window,
): Source {
  const { where, order, values } = conditions({ ...window, from: firstSince(reader, window.sinceMs) }, "d");
  const rows = reader
    .prepare(
      `SELECT d.row_id, ${DECISION.sql} FROM security_decision_events d
       WHERE d.type = '${type}' ${where} ORDER BY ${order}`,
    )
    .iterate(...values);
  try {
    for (const row of rows) {
      const decision = named(DECISION.names, row.slice(1));
      yield {
        n: Number(row[0]),
        entry: actEntry(reader, layer, decision, endOf(reader, table, decision.event_id)),
      };
    }
  } finally {
    rows.return?.();
  }
}

/** The row that ended an act. Where its producer came back after the ledger had given it up, the producer's own. */
export function endOf(reader: LedgerReader, table: LedgerTable, eventId: Cell | undefined): Named | null {
  const { sql, names } = selected(table, "e", "");
  const found = reader
    .prepare(
      `SELECT ${sql} FROM ${table} e WHERE e.event_id = ?
       ORDER BY e.outcome = 'interrupted', e.row_id DESC LIMIT 1`,
    )
    .get(eventId ?? null);
  return found === undefined ? null : named(names, found);
}

/** Ends of acts that no decision of this ledger began. */
function* undecided(reader: LedgerReader, layer: ActLayer, table: LedgerTable, window: Window): Source {
  const { where, order, values } = conditions(window, "e");
  const { sql, names } = selected(table, "e", "");
  const rows = reader
    .prepare(
      `SELECT e.row_id, ${sql} FROM ${table} e
       WHERE NOT EXISTS (SELECT 1 FROM security_decision_events d WHERE d.event_id = e.event_id)
       ${where} ORDER BY ${order}`,
    )
    .iterate(...values);
  try {
    for (const row of rows) {
      yield { n: Number(row[0]), entry: actEntry(reader, layer, null, named(names, row.slice(1))) };
    }
  } finally {
    rows.return?.();
  }
}

function* asks(reader: LedgerReader, window: Window): Source {
  const { where, order, values } = conditions(window, "a");
  const { sql, names } = selected("security_ask_events", "a", "");
  const rows = reader
    .prepare(`SELECT a.row_id, ${sql} FROM security_ask_events a WHERE 1 ${where} ORDER BY ${order}`)
    .iterate(...values);
  try {
    for (const row of rows) {
      const ask = named(names, row.slice(1));
      yield { n: Number(row[0]), entry: askEntry(reader, ask, decisionOf(reader, ask.event_id)) };
    }
  } finally {
    rows.return?.();
  }
}

/** Rules that detect, and rules that blocked. */
function* rules(reader: LedgerReader, window: Window): Source {
  const { where, order, values } = conditions({ ...window, traceId: null }, "r");
  const { sql, names } = selected("security_rule_events", "r", "");
  const rows = reader
    .prepare(
      `SELECT r.row_id, ${sql} FROM security_rule_events r
       WHERE ${NOTABLE_RULE} ${where} ORDER BY ${order}`,
    )
    .iterate(...values);
  try {
    for (const row of rows) {
      const rule = named(names, row.slice(1));
      const decision = decisionOf(reader, rule.event_id);
      if (window.traceId !== null && decision?.trace_id !== window.traceId) continue;
      yield { n: Number(row[0]), entry: ruleEntry(reader, rule, decision) };
    }
  } finally {
    rows.return?.();
  }
}

export function decisionOf(reader: LedgerReader, eventId: Cell | undefined): Named | null {
  const found = reader
    .prepare(`SELECT ${DECISION.sql} FROM security_decision_events d WHERE d.event_id = ? LIMIT 1`)
    .get(eventId ?? null);
  return found === undefined ? null : named(DECISION.names, found);
}

/** The first decision of that time or later; by the index, so that a ledger's whole past is not read. */
export function firstSince(reader: LedgerReader, sinceMs: number | null): number | null {
  if (sinceMs === null) return null;
  const [n] =
    reader.prepare("SELECT min(row_id) FROM security_decision_events WHERE time_ms >= ?").get(sinceMs) ?? [];
  return typeof n === "number" ? n : Number.MAX_SAFE_INTEGER;
}

/** The window in SQL, for rows of a table under an alias; also what other readers page with. */
export function conditions(
  { after, sinceMs, traceId, newest, end = null, from = null }: Window,
  alias: string,
): { where: string; order: string; values: Cell[] } {
  const parts: [string, Cell][] = [];
  if (after !== null) parts.push([`${alias}.row_id ${newest ? "<" : ">"} ?`, after]);
  if (end !== null) parts.push([`${alias}.row_id ${newest ? ">=" : "<="} ?`, end]);
  if (from !== null) parts.push([`${alias}.row_id >= ?`, from]);
  if (sinceMs !== null) parts.push([`${alias}.time_ms >= ?`, sinceMs]);
  if (traceId !== null) parts.push([`${alias}.trace_id = ?`, traceId]);
  return {
    where: parts.map(([sql]) => `AND ${sql}`).join(" "),
    order: `${alias}.row_id ${newest ? "DESC" : "ASC"}`,
    values: parts.map(([, value]) => value),
  };
}

/** Several sources in order as one in order; what is not asked for is not read. */
function* merge(sources: readonly Ordered[], newest: boolean): Source {
  const heads = sources.map((source) => ({ source, next: source.next() }));
  try {
    for (;;) {
      let best: (typeof heads)[number] | null = null;
      for (const head of heads) {
        if (head.next.done === true) continue;
        if (best === null || best.next.done === true) best = head;
        else if (newest ? head.next.value.n > best.next.value.n : head.next.value.n < best.next.value.n)
          best = head;
      }
      if (best === null || best.next.done === true) return;
      yield best.next.value;
      best.next = best.source.next();
    }
  } finally {
    for (const { source } of heads) source.return?.();
  }
}
