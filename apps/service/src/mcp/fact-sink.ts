import { HOST_LEDGER } from "@capsem/api";
import { Failure, messageOf } from "@capsem/base";
import type { AnyRow, LedgerWriter, Redactor } from "../boundary/parts.ts";
import type { ServiceLog } from "../log/service-log.ts";
import { type CallFact, type DecisionFact, type Fact, readFact } from "./fact.ts";
import { bodyRow, type KnownRules, rowOfCall, rowOfNet, rowsOfDecision } from "./fact-rows.ts";
import { FACT_LIMITS } from "./limits.ts";

export interface SinkParts {
  /** A VM's id or `host`: whose ledger it is, and of whom a fact may speak. */
  readonly scope: string;
  readonly ledger: Pick<LedgerWriter, "appendAll">;
  readonly redactor: Redactor;
  readonly rules: KnownRules;
  /** Whether somebody of this host asked the proxy for a call: `requester` of a fact is nobody else beside a guest. */
  readonly isCaller: (who: Fact["who"]) => boolean;
  /** A declared server has answered a call. */
  readonly onAnswered: (server: string) => void;
  readonly log: ServiceLog;
}

export const GUEST = "guest";

/**
 * What one proxy says becomes rows, in its order, without its secrets. Every call that was begun is ended, by the proxy
 * or, when that is gone, here. Never throws: what a proxy was allowed to do is not undone by what it says of it.
 */
export class FactSink {
  /** Ended calls, since it began. */
  calls = 0;
  readonly #parts: SinkParts;
  readonly #vmId: string | null;
  /** Intents whose call has not ended. */
  readonly #open = new Map<string, DecisionFact>();
  /** Ends that overtook their intent, which came in a larger message. */
  readonly #early = new Map<string, CallFact>();
  readonly #storing = new Set<Promise<void>>();
  #faults = 0;
  #isClosed = false;

  constructor(parts: SinkParts) {
    this.#parts = parts;
    this.#vmId = parts.scope === HOST_LEDGER ? null : parts.scope;
  }

  get openCount(): number {
    return this.#open.size;
  }

  append(facts: readonly unknown[]): void {
    const rows: AnyRow[] = [];
    for (const value of facts) {
      const fact = readFact(value, this.#vmId);
      if (typeof fact === "string") this.#fault("what a proxy says cannot be recorded", fact);
      else this.#take(fact, rows);
    }
    this.#store(rows);
    // Its last words may come behind the end of its channel.
    if (this.#isClosed) void this.close();
  }

  /** The proxy is gone: what it did not end is ended. Resolves when everything was given to the ledger. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const { redactor } = this.#parts;
    const rows: AnyRow[] = [];
    for (const intent of this.#open.values()) {
      this.calls += 1;
      rows.push(...this.#rows(intent, () => [rowOfCall(interrupted(intent), NO_BODIES, redactor)]));
    }
    this.#open.clear();
    this.#store(rows);
    for (const { who } of this.#early.values())
      this.#fault("the end of a call has no beginning", who.event_id);
    this.#early.clear();
    await Promise.allSettled(this.#storing);
  }

  #take(fact: Fact, rows: AnyRow[]): void {
    const { redactor, rules } = this.#parts;
    const known = this.#withRequester(fact);
    switch (known.kind) {
      case "decision":
        rows.push(...this.#rows(known, () => rowsOfDecision(known, rules, redactor)));
        this.#begin(known, rows);
        break;
      case "call":
        this.#end(known, rows);
        break;
      case "net":
        rows.push(...this.#rows(known, () => [rowOfNet(known, redactor)]));
    }
  }

  #begin(fact: DecisionFact, rows: AnyRow[]): void {
    if (fact.event.type !== "mcp.tool_call") return;
    const { event_id } = fact.who;
    if (this.#open.has(event_id)) this.#fault("a proxy began a call twice", event_id);
    else if (this.#open.size >= FACT_LIMITS.openMax) this.#fault("a proxy ends no calls", event_id);
    else this.#open.set(event_id, fact);
    const early = this.#early.get(event_id);
    if (early === undefined) return;
    this.#early.delete(event_id);
    this.#end(early, rows);
  }

  #end(fact: CallFact, rows: AnyRow[]): void {
    const { event_id } = fact.who;
    if (!this.#open.delete(event_id)) {
      if (this.#early.size < FACT_LIMITS.earlyMax) this.#early.set(event_id, fact);
      else this.#fault("the end of a call has no beginning", event_id);
      return;
    }
    this.calls += 1;
    if (fact.outcome === "done" && fact.call.origin === "mcp") this.#parts.onAnswered(fact.call.server_name);
    const { request, response } = fact.bodies ?? {};
    if (request === undefined && response === undefined) {
      rows.push(...this.#rows(fact, () => [rowOfCall(fact, NO_BODIES, this.#parts.redactor)]));
      return;
    }
    const storing = this.#storeBodies(fact).finally(() => this.#storing.delete(storing));
    this.#storing.add(storing);
  }

  /** Behind other rows, perhaps: between the intent and the end of a call nothing depends on their order. */
  async #storeBodies(fact: CallFact): Promise<void> {
    const { redactor } = this.#parts;
    const { request, response } = fact.bodies ?? {};
    try {
      const sent = request === undefined ? null : await bodyRow("mcp.request", request, redactor);
      const received = response === undefined ? null : await bodyRow("mcp.response", response, redactor);
      const hashes = { request: sent?.hash ?? null, response: received?.hash ?? null };
      const bodies = [sent, received].flatMap((body) => (body === null ? [] : [body.row]));
      // One by one: of two large bodies each is a message of its own.
      for (const row of bodies) this.#store([row]);
      this.#store([rowOfCall(fact, hashes, redactor)]);
    } catch (thrown) {
      this.#fault("the end of a call is not in the ledger", `${fact.who.event_id}: ${messageOf(thrown)}`);
    }
  }

  /** A guest cannot be anybody else, whatever its proxy says. */
  #withRequester(fact: Fact): Fact {
    const { who } = fact;
    if (who.requester === GUEST && who.token_id === null) return fact;
    if (this.#parts.isCaller(who)) return fact;
    this.#fault("a proxy names somebody who asked nothing", who.event_id);
    return { ...fact, who: { ...who, requester: GUEST, token_id: null } };
  }

  #rows({ who }: Fact, make: () => AnyRow[]): AnyRow[] {
    try {
      return make();
    } catch (thrown) {
      this.#fault("what a proxy says cannot be recorded", `${who.event_id}: ${messageOf(thrown)}`);
      return [];
    }
  }

  #store(rows: readonly AnyRow[]): void {
    if (rows.length === 0) return;
    const { scope, ledger } = this.#parts;
    try {
      ledger.appendAll(scope, rows, true);
    } catch (thrown) {
      if (rows.length === 1) this.#storeElsewhere(rows, thrown);
      // One that no ledger takes must not keep out the others.
      else for (const row of rows) this.#store([row]);
    }
  }

  #storeElsewhere(rows: readonly AnyRow[], why: unknown): void {
    const { scope, ledger } = this.#parts;
    const isItsOwn = why instanceof Failure && (why.kind === "ledger_full" || why.kind === "ledger_broken");
    try {
      if (!isItsOwn || scope === HOST_LEDGER) throw why;
      ledger.appendAll(HOST_LEDGER, rows, true);
    } catch (thrown) {
      const what = rows
        .map(({ table, row }) => `${table} ${"event_id" in row ? row.event_id : ""}`)
        .join(", ");
      this.#fault("what a proxy did is in no ledger", `${what}: ${messageOf(thrown)}`);
    }
  }

  #fault(message: string, cause: string): void {
    this.#faults += 1;
    if (this.#faults > FACT_LIMITS.faultsLogged) return;
    const isLast = this.#faults === FACT_LIMITS.faultsLogged;
    this.#parts.log("error", message, {
      scope: this.#parts.scope,
      cause,
      ...(isLast ? { more: "not logged" } : {}),
    });
  }
}

const NO_BODIES = { request: null, response: null } as const;

/** Of what is only known by its intent. */
function interrupted({ who, event, decision }: DecisionFact): Omit<CallFact, "kind" | "bodies"> {
  const text = (path: string) => {
    const value = event.fields[path];
    return typeof value === "string" ? value : null;
  };
  return {
    ...{ who, decision },
    call: {
      call_id: text("mcp.tool_call.id") ?? who.event_id,
      origin: event.fields["mcp.server.external"] === false ? "builtin" : "mcp",
      transport: transportOf(text("mcp.transport")),
      server_name: text("mcp.server.name") ?? "",
      tool_name: text("mcp.tool_call.name") ?? "",
      method: text("mcp.method") ?? "tools/call",
      request_id: text("mcp.request.id"),
      process_name: text("process.name"),
      arguments_preview: null,
      response_preview: null,
      bytes_sent: null,
      bytes_received: null,
      label_in: "{}",
      label_out: null,
      is_pinned: event.fields["mcp.server.pinned"] === true,
    },
    outcome: "interrupted",
    error: "proxy_lost",
    duration_ms: null,
  };
}

function transportOf(word: string | null): "framed" | "http" | "direct" {
  return word === "framed" || word === "http" ? word : "direct";
}
