import type { FactWho, WorkerPlan } from "@capsem/api";
import { Failure, messageOf } from "@capsem/base";
import {
  type Decision,
  decide,
  type EventFields,
  type EventType,
  type FieldPath,
  type Label,
  type PolicySnapshot,
  type SecurityEvent,
  type StoredEvent,
  securityEvent,
} from "@capsem/policy";

export type Transport = "framed" | "http" | "direct";

/** Whoever asks, as rows have it. */
export type Person = Omit<FactWho, "event_id" | "time_ms">;

/** Whoever asks: first as rules see it. */
export interface Asker {
  readonly transport: Transport;
  readonly processName: string | null;
  readonly label: Label;
  readonly person: Person;
}

/** What was judged, by which rules, and how. */
export interface Judgement {
  readonly who: FactWho;
  /** Null: no event could be made of it, and it is blocked. */
  readonly event: SecurityEvent | null;
  readonly stored: StoredEvent;
  readonly decision: Decision;
  readonly snapshot: PolicySnapshot;
  /** A part of the payload is in no field. */
  readonly isCut: boolean;
}

/** Fields that hold payloads of any size: what no rule reads need not be held whole, or at all. */
const PAYLOADS = ["mcp.request.arguments", "mcp.response.structured"] as const satisfies readonly FieldPath[];

export type Fields = { -readonly [P in keyof EventFields]: EventFields[P] };

/** Where it happens, and who asks. */
export function fieldsOf(vm: WorkerPlan["vm"], asker: Asker): Fields {
  const { confidentiality, integrity, sources } = asker.label;
  const fields: Fields = {
    "label.confidentiality": confidentiality,
    "label.integrity": integrity,
    "label.sources": sources,
    "mcp.transport": asker.transport,
  };
  if (vm !== null) {
    fields["vm.id"] = vm.id;
    if (vm.name !== null) fields["vm.name"] = vm.name;
    if (vm.image !== null) fields["vm.image"] = vm.image;
  }
  if (asker.processName !== null) fields["process.name"] = asker.processName;
  return fields;
}

/**
 * Never throws: what cannot be judged is blocked, with the reason. A payload that is too large or too deep for an event
 * is left out of it where no rule reads it, and the event says that it was cut.
 */
export function judge(
  snapshot: PolicySnapshot,
  type: EventType,
  who: FactWho,
  fields: EventFields,
): Judgement {
  const identity: { event_id: string; trace_id?: string; turn_id?: string } = { event_id: who.event_id };
  if (who.trace_id !== null) identity.trace_id = who.trace_id;
  if (who.turn_id !== null) identity.turn_id = who.turn_id;
  try {
    const event = eventOf(snapshot, type, identity, fields);
    const decision = decide(snapshot, event);
    const isCut = event.facts.get("mcp.truncated") === true;
    return { who, event, stored: event.toJSON(), decision, snapshot, isCut };
  } catch (thrown) {
    const stored = { type, ...identity, fields: {} };
    return { who, event: null, stored, decision: unjudged(thrown), snapshot, isCut: false };
  }
}

function eventOf(
  snapshot: PolicySnapshot,
  type: EventType,
  identity: Pick<StoredEvent, "event_id">,
  fields: EventFields,
): SecurityEvent {
  try {
    return securityEvent(type, identity, fields);
  } catch (thrown) {
    const left: Fields = { ...fields, "mcp.truncated": true };
    let isLess = false;
    for (const path of PAYLOADS) {
      if (left[path] === undefined || snapshot.reads(path)) continue;
      delete left[path];
      isLess = true;
    }
    if (!isLess) throw thrown;
    return securityEvent(type, identity, left);
  }
}

/** The reason is kept and shown only where it is our own text. */
export function unjudged(thrown: unknown): Decision {
  return {
    action: "block",
    rule_id: "boundary.event_invalid",
    reason: thrown instanceof Failure ? messageOf(thrown) : "it cannot be judged: an internal error",
    detection: "none",
    changes: [],
    explanation: { matched: [], why: "no_rule", allowed: [] },
  };
}
