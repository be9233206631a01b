import { ENDS_IN, type LedgerTable, type Outcome } from "@capsem/api";
import type { Row } from "./row.ts";
import { COLUMNS, columnIndex } from "./schema.ts";
import type { Cell, Database } from "./sqlite.ts";

/** A decision whose act has not ended. */
export interface OpenAct {
  readonly eventId: string;
  readonly table: LedgerTable;
  readonly producer: string;
  readonly generation: string;
  /** The decision's number in the chain. */
  readonly n: number;
}

export const DECISIONS_TABLE = "security_decision_events";
const END_TABLES: ReadonlySet<string> = new Set(Object.values(ENDS_IN));
const TYPE_AT = 1 + columnIndex(DECISIONS_TABLE, "type");

export function isEndTable(table: string): boolean {
  return END_TABLES.has(table);
}

/** The table that a decision's act ends in; null for another row, and for a decision that is complete by itself. */
export function endTableOf(row: Row): LedgerTable | null {
  if (row[0] !== DECISIONS_TABLE) return null;
  const type = row[TYPE_AT];
  return typeof type === "string" && Object.hasOwn(ENDS_IN, type) ? (ENDS_IN[type] ?? null) : null;
}

/** The open acts of one ledger, in memory and in a table beside the chain: what is told here lands there at `store`. */
export class OpenActs {
  readonly #acts = new Map<string, OpenAct>();
  #opened = new Map<string, OpenAct>();
  #closed = new Set<string>();

  constructor(db: Database) {
    for (const [eventId, table, producer, generation, n] of db
      .prepare("SELECT event_id, tbl, producer, generation, n FROM open_acts")
      .all()) {
      const act = { eventId, table, producer, generation, n } as OpenAct;
      this.#acts.set(act.eventId, act);
    }
  }

  get size(): number {
    return this.#acts.size;
  }

  get(eventId: string): OpenAct | undefined {
    return this.#acts.get(eventId);
  }

  /** What a row does: a decision opens, the row of its table ends. */
  note(row: Row, n: number, producer: string, generation: string): void {
    const eventId = row[1] as string;
    const table = endTableOf(row);
    if (table !== null) this.#open({ eventId, table, producer, generation, n });
    else if (isEndTable(row[0]) && this.#acts.get(eventId)?.table === row[0]) this.#close(eventId);
  }

  /** Acts of a producer that no row will end: of all its generations but one. */
  ofOthers(producer: string, generation: string | null): OpenAct[] {
    return [...this.#acts.values()]
      .filter((act) => act.producer === producer && act.generation !== generation)
      .sort((a, b) => a.n - b.n);
  }

  /** Writes what changed since the last time; inside the transaction that it belongs to. */
  store(statements: { add: (act: OpenAct) => void; remove: (eventId: string) => void }): void {
    for (const eventId of this.#closed) statements.remove(eventId);
    for (const act of this.#opened.values()) statements.add(act);
    this.#opened = new Map();
    this.#closed = new Set();
  }

  /** Whose decision is gone, which nothing can end: what is wrong is found where the chain is verified. */
  forget(eventId: string): void {
    if (this.#acts.has(eventId)) this.#close(eventId);
  }

  #open(act: OpenAct): void {
    this.#acts.set(act.eventId, act);
    this.#opened.set(act.eventId, act);
  }

  #close(eventId: string): void {
    this.#acts.delete(eventId);
    // Most acts end in the transaction that they began in: nothing was stored of them.
    if (!this.#opened.delete(eventId)) this.#closed.add(eventId);
  }
}

/** What an act's own row says of it when nobody else does: from its decision and the event that was judged. */
export function interruptedRow(
  act: OpenAct,
  decision: readonly Cell[],
  event: Readonly<Record<string, unknown>>,
  nowMs: number,
): Row {
  const said = (name: string): Cell => decision[columnIndex(DECISIONS_TABLE, name)] ?? null;
  const field = (...paths: readonly string[]): string | null => {
    const found = paths.map((path) => event[path]).find((value) => typeof value === "string");
    return typeof found === "string" ? found : null;
  };
  const type = String(said("type"));
  const fileAct = FILE_ACTS.find((each) => field(`file.${each}.path`) !== null) ?? type.replace("file.", "");
  const facts: Readonly<Record<string, Cell>> = {
    ...Object.fromEntries(CARRIED.map((name) => [name, said(name)])),
    time_ms: nowMs,
    decision: said("action"),
    outcome: "interrupted" satisfies Outcome,
    error: "nobody lived to say how it ended",
    duration_ms: Math.max(0, nowMs - Number(said("time_ms"))),
    job_id: field("process.exec.id"),
    kind: act.table === "net_events" ? type : "exec",
    command: field("process.command") ?? "",
    user: field("process.exec.user"),
    cwd: field("process.exec.cwd"),
    env_names: "[]",
    act: fileAct,
    path: field("http.path", ...FILE_ACTS.map((each) => `file.${each}.path`)) ?? "",
    is_tree: 0,
    action: field("vm.lifecycle.action") ?? "",
    vm_name: field("vm.name"),
    image: field("vm.image"),
    ...toolFacts(field),
    key: field("settings.key") ?? "",
    source: field("settings.source") ?? "",
    digest_before: said("policy_digest"),
  };
  const cells = COLUMNS[act.table].map(({ name, kind, isOptional }) => {
    const known = facts[name] ?? null;
    if (known !== null || isOptional) return known;
    return kind === "text" ? "" : kind === "json" ? "null" : 0;
  });
  return [act.table, ...cells];
}

/** Of a call or a request: what its event says. */
function toolFacts(field: (...paths: string[]) => string | null): Readonly<Record<string, Cell>> {
  const server = field("mcp.server.name");
  return {
    call_id: field("mcp.tool_call.id") ?? "",
    origin: server === "local" ? "builtin" : "mcp",
    transport: field("mcp.transport") ?? "",
    server_name: server ?? "",
    tool_name: field("mcp.tool_call.name") ?? "",
    method: field("mcp.method", "http.method") ?? "",
    request_id: field("mcp.request.id"),
    process_name: field("process.name"),
    scheme: field("http.scheme"),
    host: field("http.host") ?? "",
    addresses: "[]",
  };
}

/** Columns of a decision that its act's row has too, under the same name. */
const CARRIED = ["event_id", "trace_id", "turn_id", "requester", "client", "token_id", "rule_id", "reason"];
const FILE_ACTS = ["import", "export", "read", "create", "write", "delete"];
