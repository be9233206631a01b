import {
  type AskInfo,
  apiFailure,
  type ColumnType,
  LEDGER_TABLES,
  type LedgerRow,
  type LedgerTable,
} from "@capsem/api";
import { type Deferred, defer } from "@capsem/base";
import type { PolicySnapshot } from "@capsem/policy";
import { snapshotOf } from "../../../../../packages/policy/src/testing/policies.ts";
import type { ActContext } from "../../act.ts";
import type { AnyRow, AskEnd, Asked, Asks, LedgerWriter, PolicySource } from "../parts.ts";

/** Rules that a test changes. */
export class FakePolicy implements PolicySource {
  #snapshot = snapshotOf("");
  fault: Error | null = null;

  rules(text: string): void {
    this.#snapshot = snapshotOf(text);
  }

  snapshot(): PolicySnapshot {
    if (this.fault !== null) throw this.fault;
    return this.#snapshot;
  }
}

/** One rule on an event type, in a file's words. */
export function ruleOn(type: string, action: string, more = ""): string {
  return `[profiles.rules.guard]\naction = "${action}"\nmatch = 'event.type == "${type}"${more}'\nreason = "the test says so"\n`;
}

type Trouble = "ledger_away" | "ledger_full" | "ledger_broken";

/** Keeps rows by ledger, and refuses those that have another shape than their table. */
export class FakeLedger implements LedgerWriter {
  readonly rows = new Map<string, AnyRow[]>();
  /** By ledger; `*` is all of them. */
  readonly trouble = new Map<string, Trouble>();

  append<T extends LedgerTable>(ledger: string, table: T, row: LedgerRow<T>): void {
    this.appendAll(ledger, [{ table, row } as AnyRow]);
  }

  appendAll(ledger: string, rows: readonly AnyRow[]): void {
    this.#check(ledger, ["ledger_away", "ledger_full", "ledger_broken"]);
    for (const row of rows) checkRow(row);
    this.rows.set(ledger, [...(this.rows.get(ledger) ?? []), ...rows]);
  }

  async ready(ledger: string): Promise<void> {
    this.#check(ledger, ["ledger_away"]);
  }

  async flush(): Promise<void> {
    // What is kept in memory is there at once.
  }

  of<T extends LedgerTable>(table: T, ledger?: string): LedgerRow<T>[] {
    const all = ledger === undefined ? [...this.rows.values()].flat() : (this.rows.get(ledger) ?? []);
    return all.filter((row) => row.table === table).map(({ row }) => row as unknown as LedgerRow<T>);
  }

  /** Everything that it has, as text: what must not be in it. */
  get text(): string {
    return JSON.stringify([...this.rows]);
  }

  clear(): void {
    this.rows.clear();
  }

  #check(ledger: string, kinds: readonly Trouble[]): void {
    const trouble = this.trouble.get(ledger) ?? this.trouble.get("*");
    if (trouble !== undefined && kinds.includes(trouble)) {
      throw apiFailure(trouble, `Cannot record the act: a scripted ${trouble}`);
    }
  }
}

function checkRow({ table, row }: AnyRow): void {
  const columns: Readonly<Record<string, ColumnType>> = LEDGER_TABLES[table].columns;
  const cells = row as unknown as Readonly<Record<string, unknown>>;
  for (const name of Object.keys(cells)) {
    if (columns[name] === undefined) throw new Error(`${table} has no column ${name}`);
  }
  for (const [name, type] of Object.entries(columns)) {
    const cell = cells[name];
    if (cell === null && type.endsWith("?")) continue;
    if (typeof cell !== JS_TYPES[type.replace("?", "")]) {
      throw new Error(`${table}.${name} is ${JSON.stringify(cell)}, not ${type}`);
    }
    if (type.startsWith("json")) JSON.parse(String(cell));
  }
}

const JS_TYPES: Readonly<Record<string, string>> = {
  text: "string",
  json: "string",
  int: "number",
  real: "number",
  time: "number",
  flag: "boolean",
};

export interface HeldAsk {
  readonly asked: Asked;
  readonly context: ActContext;
  readonly end: Deferred<AskEnd>;
  resolve(state: AskEnd["state"], more?: Partial<AskInfo>): void;
}

/** Asks that a test resolves. A caller that leaves cancels its own. */
export class FakeAsks implements Asks {
  readonly held: HeldAsk[] = [];
  /** Thrown instead of holding. */
  failure: Error | null = null;

  async hold(asked: Asked, context: ActContext): Promise<AskEnd> {
    if (this.failure !== null) throw this.failure;
    const end = defer<AskEnd>();
    const resolve = (state: AskEnd["state"], more: Partial<AskInfo> = {}) => {
      const stored = state === "cancelled" ? "pending" : state;
      end.resolve({ state, ask: { ...askInfo(asked, stored), ...more } });
    };
    context.signal.addEventListener("abort", () => resolve("cancelled", { state: "expired" }), {
      once: true,
    });
    this.held.push({ asked, context, end, resolve });
    return end.promise;
  }
}

function askInfo({ event, decision, title, vm, digest }: Asked, state: AskInfo["state"]): AskInfo {
  return {
    id: "ask_abcdefghij234567",
    state,
    vm_id: vm?.id ?? null,
    vm_name: vm?.name ?? null,
    type: event.type,
    title,
    rule_id: decision.rule_id,
    reason: decision.reason,
    requester: "user uid 1000",
    client: null,
    trace_id: null,
    digest,
    created_at: "2026-01-01T00:00:00.000Z",
    expires_at: "2026-01-01T00:05:00.000Z",
    is_held: false,
    is_used: false,
    scope: null,
    resolver: null,
    note: null,
    resolved_at: null,
    event_id: event.identity.event_id,
    scopes: state === "pending" ? ["once"] : [],
  };
}
