import type { LedgerRow, Outcome } from "@capsem/api";
import type { Target } from "@capsem/net";
import { canonicalHost, type Decision, type EventFields } from "@capsem/policy";
import type { ActDraft, ActFacts, Redactor, VmFacts } from "../boundary/parts.ts";
import { type Cells, endRow, type Who } from "../boundary/rows.ts";
import { EGRESS_ADMISSION_LIMITS } from "./limits.ts";

export type NetKind = "connection" | "http.request";
type NetFacts = ActFacts<"net_events">;

/** Of a URL that was refused before it named a target. */
export const NO_TARGET = { scheme: null, host: "", port: null, path: null } as const;

export interface Dialled {
  readonly kind: NetKind;
  readonly server: string | null;
  readonly target: Pick<Target, "scheme" | "host" | "port" | "path"> | typeof NO_TARGET;
  readonly method: string;
}

/** What is known of it before it is done. A connection has no path: many requests go over it. */
export function netFacts({ kind, server, target, method }: Dialled): NetFacts {
  const isRequest = kind === "http.request";
  return {
    ...{ kind, process_name: null, server_name: server },
    ...{ scheme: target.scheme, host: target.host, port: target.port },
    ...{ method: isRequest ? method : null, path: isRequest ? target.path : null },
    ...{ addresses: "[]", status: null, bytes_sent: null, bytes_received: null, credential_ref: null },
  };
}

/** A request of a builtin tool, as rules see it: before its name is looked up, which would tell somebody of it. */
export function requestDraft(
  vm: VmFacts | null,
  method: string,
  target: Target,
  headers: readonly (readonly [string, string])[],
): ActDraft {
  const { scheme, port, path } = target;
  const host = canonicalHost(target.host) ?? target.host;
  const query = path.indexOf("?");
  const fields: EventFields = {
    ...{ "http.scheme": scheme, "http.host": host, "http.port": port, "http.method": method },
    "http.path": query < 0 ? path : path.slice(0, query),
    ...(query < 0 ? {} : { "http.query": path.slice(query + 1) }),
    "http.headers": joined(headers),
  };
  const title = `${method} ${target.origin}${path}`;
  const facts = netFacts({ kind: "http.request", server: null, target, method });
  return {
    ...{ type: "http.request", vm, fields, row: { table: "net_events", facts } },
    title: title.slice(0, EGRESS_ADMISSION_LIMITS.titleCharactersMax),
    does: `fetch from ${target.host}`,
  };
}

function joined(headers: readonly (readonly [string, string])[]): Record<string, string> {
  const all = new Map<string, string>();
  for (const [name, value] of headers) {
    const lower = name.toLowerCase();
    const before = all.get(lower);
    all.set(lower, before === undefined ? value : `${before}, ${value}`);
  }
  return Object.fromEntries(all);
}

export interface NetEnd {
  readonly outcome: Outcome;
  readonly error: string | null;
  readonly durationMs: number | null;
}

/** The one row of what no rule was asked about: a connection to a declared server, or what nobody may dial. */
export function netRow(
  who: Who,
  facts: NetFacts,
  added: Cells,
  verdict: Pick<Decision, "action" | "rule_id" | "reason">,
  end: NetEnd,
  redactor: Redactor,
): LedgerRow<"net_events"> {
  const decision: Decision = {
    ...verdict,
    ...{ detection: "none", changes: [], explanation: { matched: [], why: "no_rule", allowed: [] } },
  };
  const { row } = endRow(who, { table: "net_events", facts }, added, decision, end, redactor);
  return row as LedgerRow<"net_events">;
}
