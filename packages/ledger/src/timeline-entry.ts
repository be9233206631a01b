import { OUTCOMES, type TimelineEntry } from "@capsem/api";
import { changeVerb, eventTitle, fieldText } from "./act-title.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import type { LedgerReader } from "./reader.ts";
import { storedEvent } from "./stored-event.ts";
import type { ActLayer } from "./timeline.ts";
import {
  countOrNull,
  cutText,
  flagOrNull,
  isoTime,
  type Named,
  numberOrNull,
  oneOf,
  requesterOf,
  textOrNull,
} from "./words.ts";

const ACTIONS = ["allow", "ask", "block"] as const;
type Details = TimelineEntry["details"];

/** An act: its decision, its end, or both; one of them is there. */
export function actEntry(
  reader: LedgerReader,
  layer: ActLayer,
  decision: Named | null,
  end: Named | null,
): TimelineEntry {
  const first = decision ?? end ?? {};
  const fields = end === null && decision !== null ? openFields(reader, decision) : {};
  return {
    time: isoTime(first.time_ms ?? 0),
    layer,
    event_id: String(first.event_id),
    trace_id: textOrNull(first.trace_id),
    requester: requesterOf(first),
    title: cutText(
      end === null ? eventTitle(String(first.type), fields) : endTitle(layer, end),
      LEDGER_LIMITS.titleCharactersMax,
    ),
    decision: oneOf(ACTIONS, decision?.action ?? end?.decision, "decision"),
    rule_id: textOrNull(first.rule_id),
    reason: textOrNull(first.reason),
    outcome: end === null ? null : oneOf(OUTCOMES, end.outcome, "outcome"),
    duration_ms: countOrNull(end?.duration_ms),
    details: {
      ...(first.client == null ? {} : { client: textOrNull(first.client) }),
      ...(end === null ? openDetails(layer, fields) : endDetails(layer, end)),
      ...(end?.error == null ? {} : { error: textOrNull(end.error) }),
    },
  };
}

/** How an ask went on. */
export function askEntry(reader: LedgerReader, ask: Named, decision: Named | null): TimelineEntry {
  const state = String(ask.state);
  const about = actDetails(reader, decision);
  return {
    time: isoTime(ask.time_ms ?? 0),
    layer: "ask",
    event_id: String(ask.event_id),
    trace_id: textOrNull(ask.trace_id),
    requester: requesterOf(ask),
    title: cutText(
      about.act === undefined ? `ask ${state}` : `ask ${state}: ${about.act}`,
      LEDGER_LIMITS.titleCharactersMax,
    ),
    decision: "ask",
    rule_id: textOrNull(ask.rule_id),
    reason: textOrNull(ask.note),
    outcome: ASK_OUTCOMES[state] ?? null,
    duration_ms: null,
    details: {
      ask_id: textOrNull(ask.ask_id),
      ...about,
      note: textOrNull(ask.note),
      scope: textOrNull(ask.scope),
      resolver: textOrNull(ask.resolver),
      deadline: isoTime(ask.deadline_ms ?? 0),
    },
  };
}

const ASK_OUTCOMES: Readonly<Record<string, TimelineEntry["outcome"]>> = {
  approved: "done",
  used: "done",
  denied: "denied",
  expired: "expired",
  cancelled: "cancelled",
};

/** A rule that detected something or blocked it, and the decision that it was part of. */
export function ruleEntry(reader: LedgerReader, rule: Named, decision: Named | null): TimelineEntry {
  const hasBlocked = rule.action === "block" && rule.has_won === 1;
  return {
    time: isoTime(rule.time_ms ?? 0),
    layer: "rule",
    event_id: String(rule.event_id),
    trace_id: textOrNull(decision?.trace_id),
    requester: decision === null ? "service" : requesterOf(decision),
    title: cutText(`${rule.rule_id} on ${decision?.type ?? "an act"}`, LEDGER_LIMITS.titleCharactersMax),
    decision:
      decision === null ? (hasBlocked ? "block" : "allow") : oneOf(ACTIONS, decision.action, "decision"),
    rule_id: textOrNull(rule.rule_id),
    reason: textOrNull(decision?.reason),
    outcome: hasBlocked ? "blocked" : "done",
    duration_ms: null,
    details: {
      ...actDetails(reader, decision),
      action: textOrNull(rule.action),
      detection: textOrNull(rule.detection),
      priority: numberOrNull(rule.priority),
      has_won: flagOrNull(rule.has_won),
      ...(rule.fault === null ? {} : { fault: textOrNull(rule.fault) }),
    },
  };
}

type Fields = Readonly<Record<string, unknown>>;

export function openFields(reader: LedgerReader, decision: Named): Fields {
  return storedEvent(reader, reader.version, decision).fields;
}

/** Of an ask or a rule: which act it was about. */
function actDetails(reader: LedgerReader, decision: Named | null): { act?: string; type?: string } {
  if (decision === null) return {};
  const type = String(decision.type);
  const act = eventTitle(type, openFields(reader, decision));
  return { act: cutText(act, LEDGER_LIMITS.titleCharactersMax), type };
}

function openDetails(layer: ActLayer, fields: Fields): Details {
  if (layer === "exec") return { job_id: textOrNull(fieldText(fields, "process.exec.id")) };
  const given = layer === "tool" ? fields["mcp.request.arguments"] : undefined;
  return given === undefined ? {} : { arguments: textOrNull(JSON.stringify(given)) };
}

function endTitle(layer: ActLayer, end: Named): string {
  switch (layer) {
    case "exec":
      return String(end.command);
    case "file":
      return end.to_path === null ? `${end.act} ${end.path}` : `${end.act} ${end.path} to ${end.to_path}`;
    case "tool":
      return `${end.server_name}__${end.tool_name}`;
    case "net":
      return netTitle(end);
    case "lifecycle":
      return String(end.action);
    case "settings":
      return `${verbOf(end)} ${end.key}`;
  }
}

function endDetails(layer: ActLayer, end: Named): Details {
  switch (layer) {
    case "exec":
      return {
        job_id: textOrNull(end.job_id),
        kind: textOrNull(end.kind),
        exit_code: numberOrNull(end.exit_code),
        signal: numberOrNull(end.signal),
        timed_out: flagOrNull(end.timed_out),
        out_of_memory: flagOrNull(end.out_of_memory),
        stdout_bytes: countOrNull(end.stdout_bytes),
        stderr_bytes: countOrNull(end.stderr_bytes),
      };
    case "file":
      return {
        path: textOrNull(end.path),
        is_tree: flagOrNull(end.is_tree),
        bytes: countOrNull(end.bytes),
        sha256: textOrNull(end.sha256),
      };
    case "tool":
      return {
        transport: textOrNull(end.transport),
        process: textOrNull(end.process_name),
        arguments: textOrNull(end.arguments_preview),
        bytes_sent: countOrNull(end.bytes_sent),
        bytes_received: countOrNull(end.bytes_received),
        label_in: textOrNull(end.label_in),
        label_out: textOrNull(end.label_out),
        is_pinned: flagOrNull(end.is_pinned),
      };
    case "net":
      return {
        kind: textOrNull(end.kind),
        process: textOrNull(end.process_name),
        server: textOrNull(end.server_name),
        addresses: textOrNull(end.addresses),
        status: numberOrNull(end.status),
        bytes_sent: countOrNull(end.bytes_sent),
        bytes_received: countOrNull(end.bytes_received),
        credential: textOrNull(end.credential_ref),
      };
    case "lifecycle":
      return {
        vm_name: textOrNull(end.vm_name),
        image: textOrNull(end.image),
        detail: textOrNull(end.detail),
      };
    case "settings":
      return {
        verb: verbOf(end),
        source: textOrNull(end.source),
        before: textOrNull(end.before),
        after: textOrNull(end.after),
      };
  }
}

/** `GET https://example.com/a`, `connect example.com:443`. */
function netTitle({ scheme, method, host, port, path }: Named): string {
  const origin = `${scheme == null ? "" : `${scheme}://`}${host}${port == null ? "" : `:${port}`}`;
  return method == null ? `connect ${origin}` : `${method} ${origin}${path ?? ""}`;
}

function verbOf({ key, after }: Named): string {
  return changeVerb(String(key), after == null ? null : String(after));
}
