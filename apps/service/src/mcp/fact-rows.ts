import { hash as digest } from "node:crypto";
import type { LedgerRow } from "@capsem/api";
import { LEDGER_ROW_LIMITS } from "@capsem/api/ledger-row";
import type { Decision, PolicySnapshot, StoredEvent } from "@capsem/policy";
import { BOUNDARY_LIMITS } from "../boundary/limits.ts";
import type { AnyRow, Redactor } from "../boundary/parts.ts";
import { clean, decisionRows, endRow, type Who, wellFormed } from "../boundary/rows.ts";
import type { CallFact, DecisionFact, NetFact } from "./fact.ts";
import { FACT_LIMITS } from "./limits.ts";

/** Rules by which a decision may have been made: those of the last changes. */
export interface KnownRules {
  of(digest: string): Pick<PolicySnapshot, "digest" | "rules"> | null;
}

/** The rows of a decision, as for the service's own acts: secrets replaced, its event a body, the rules that matched. */
export function rowsOfDecision(
  { who: said, event, decision, policy_digest }: DecisionFact,
  rules: KnownRules,
  redactor: Redactor,
): AnyRow[] {
  const who = cleanWho(said, redactor);
  const { event_id, trace_id, turn_id } = who;
  const stored = {
    type: event.type,
    event_id,
    trace_id: trace_id ?? undefined,
    turn_id: turn_id ?? undefined,
    fields: event.fields,
  } as StoredEvent;
  // By rules that nobody gave it: the digest says so, and there are no texts of them.
  const snapshot = rules.of(policy_digest) ?? { digest: policy_digest, rules: [] };
  const hasEvent = Object.keys(event.fields).length > 0;
  const judged = { stored, decision, snapshot, event: hasEvent ? event : null };
  return decisionRows(who, judged, redactor);
}

/**
 * The one row that ends a call. `hashes` are of bodies that are stored with it. Written out, column by column: it is made
 * for every call, and an object that is filled by name takes several times as long.
 */
export function rowOfCall(
  { who, call, decision, outcome, error, duration_ms }: Omit<CallFact, "kind" | "bodies">,
  hashes: { readonly request: string | null; readonly response: string | null },
  redactor: Redactor,
): AnyRow {
  const text = (value: string) => clean(value, redactor);
  const optional = (value: string | null) => (value === null ? null : clean(value, redactor));
  const row: LedgerRow<"tool_calls"> = {
    event_id: who.event_id,
    time_ms: who.time_ms,
    trace_id: optional(who.trace_id),
    turn_id: optional(who.turn_id),
    requester: who.requester,
    client: optional(who.client),
    token_id: who.token_id,
    call_id: text(call.call_id),
    origin: call.origin,
    transport: call.transport,
    server_name: text(call.server_name),
    tool_name: text(call.tool_name),
    method: text(call.method),
    request_id: optional(call.request_id),
    process_name: optional(call.process_name),
    arguments_preview: preview(call.arguments_preview, redactor),
    response_preview: preview(call.response_preview, redactor),
    request_hash: hashes.request,
    response_hash: hashes.response,
    bytes_sent: call.bytes_sent,
    bytes_received: call.bytes_received,
    label_in: text(call.label_in),
    label_out: optional(call.label_out),
    is_pinned: call.is_pinned,
    capability_token: null,
    object_handle: null,
    credential_ref: null,
    decision: decision.action,
    rule_id: decision.rule_id,
    reason: text(decision.reason),
    outcome,
    error: optional(error),
    duration_ms,
  };
  return { table: "tool_calls", row };
}

/** A name that is ours, and that it did not serve. */
export function rowOfNet({ who, net, outcome, reason }: NetFact, redactor: Redactor): AnyRow {
  const facts = {
    kind: net.kind,
    process_name: net.process_name,
    server_name: null,
    scheme: null,
    host: net.host,
    port: net.port,
    method: net.method,
    path: net.path,
    addresses: "[]",
    status: net.status,
    bytes_sent: null,
    bytes_received: null,
    credential_ref: null,
  };
  const decision: Decision = { ...RESERVED, rule_id: net.kind, reason };
  const end = { outcome, error: null, durationMs: null };
  return endRow(cleanWho(who, redactor), { table: "net_events", facts }, {}, decision, end, redactor);
}

const RESERVED = {
  action: "block",
  detection: "none",
  changes: [],
  explanation: { matched: [], why: "no_rule", allowed: [] },
} as const;

/** A whole payload, which an event had no room for. Its hash is over what is stored. */
export async function bodyRow(
  kind: "mcp.request" | "mcp.response",
  { text, bytes }: { readonly text: string; readonly bytes: number },
  redactor: Redactor,
): Promise<{ row: AnyRow; hash: string }> {
  const bytesMax = LEDGER_ROW_LIMITS.bodyBytesMax - FACT_LIMITS.rowBytes;
  const replaced = cutTo(await redactedInSlices(text, redactor), bytesMax);
  const hash = digest("sha256", replaced);
  const isTruncated = replaced.length < text.length || Buffer.byteLength(text) < bytes;
  const row = { hash, kind, original_bytes: bytes, is_truncated: isTruncated, body: replaced };
  return { row: { table: "event_body_blobs", row }, hash };
}

/** Ten megabytes at once would keep everybody waiting. */
async function redactedInSlices(text: string, redactor: Redactor): Promise<string> {
  const parts: string[] = [];
  let isChanged = false;
  for (let at = 0; at < text.length; ) {
    const end = sliceEnd(text, at, redactor);
    const slice = text.slice(at, end);
    const cleaned = clean(slice, redactor);
    parts.push(cleaned);
    isChanged ||= cleaned !== slice;
    at = end;
    if (at < text.length) await new Promise((resolve) => setImmediate(resolve));
  }
  return isChanged ? parts.join("") : text;
}

/** Where nothing lies across that would be replaced; where there is no such place near, the end of all. */
function sliceEnd(text: string, at: number, redactor: Redactor): number {
  const { sliceCharacters, sliceTries } = FACT_LIMITS;
  const { secretCharactersMax } = BOUNDARY_LIMITS;
  for (let tries = 0; tries < sliceTries; tries++) {
    const end = at + sliceCharacters - tries * 2 * secretCharactersMax;
    if (end >= text.length) return text.length;
    const [before, after] = [
      text.slice(end - secretCharactersMax, end),
      text.slice(end, end + secretCharactersMax),
    ];
    const apart = redactor.text(before).text + redactor.text(after).text;
    const isHalf = /[\ud800-\udbff]$/.test(before);
    if (!isHalf && redactor.text(before + after).text === apart) return end;
  }
  return text.length;
}

function cutTo(text: string, bytesMax: number): string {
  if (text.length * 3 <= bytesMax || Buffer.byteLength(text) <= bytesMax) return text;
  const cut = Buffer.from(text).subarray(0, bytesMax).toString("utf8");
  // Half a character at its end is left out.
  return cut.endsWith("\ufffd") ? cut.slice(0, -1) : cut;
}

/** A proxy cuts what it shows, so that half a secret may be at the end; whole JSON ends as it began. */
function preview(text: string | null, redactor: Redactor): string | null {
  if (text === null) return null;
  const isCut = !(text.endsWith("}") || text.endsWith("]"));
  const { previewCharactersMax } = BOUNDARY_LIMITS;
  const shown = wellFormed(redactor.text(text, { isCut }).text);
  return shown.length <= previewCharactersMax ? shown : wellFormed(shown.slice(0, previewCharactersMax));
}

/** What a client says of itself, of its turn and trace, may hold a secret like any other text. */
function cleanWho(who: Who, redactor: Redactor): Who {
  const { event_id, time_ms, trace_id, turn_id, requester, client, token_id } = who;
  const said = (text: string | null) => (text === null ? null : clean(text, redactor));
  return {
    event_id,
    time_ms,
    trace_id: said(trace_id),
    turn_id: said(turn_id),
    requester,
    client: said(client),
    token_id,
  };
}
