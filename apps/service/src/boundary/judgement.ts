import { Failure, messageOf } from "@capsem/base";
import {
  type Decision,
  decide,
  type EventIdentity,
  type PolicySnapshot,
  type SecurityEvent,
  type StoredEvent,
  securityEvent,
} from "@capsem/policy";
import type { ActDraft, PolicySource } from "./parts.ts";

/** What was judged, by which rules, and how. */
export interface Judgement {
  /** Null: no event could be made of it, and it is refused. */
  readonly event: SecurityEvent | null;
  readonly stored: StoredEvent;
  readonly decision: Decision;
  /** Null: there were no rules to judge by, and it is refused. */
  readonly snapshot: PolicySnapshot | null;
}

/** Never throws: what cannot be judged is blocked, with the reason. */
export function judge(
  policy: PolicySource,
  identity: EventIdentity,
  { type, vm, fields }: Pick<ActDraft, "type" | "vm" | "fields">,
): Judgement {
  let event: SecurityEvent;
  try {
    const ofVm = vm === null ? {} : vmFields(vm);
    event = securityEvent(type, identity, { ...ofVm, ...fields });
  } catch (thrown) {
    const stored = { type, ...identity, fields: {} };
    return { event: null, stored, decision: fault("event_invalid", thrown), snapshot: null };
  }
  let snapshot: PolicySnapshot | null = null;
  try {
    snapshot = policy.snapshot();
    return { event, stored: event.toJSON(), decision: decide(snapshot, event), snapshot };
  } catch (thrown) {
    return { event, stored: event.toJSON(), decision: fault("fault", thrown), snapshot };
  }
}

function vmFields({ id, name, image }: NonNullable<ActDraft["vm"]>) {
  return {
    "vm.id": id,
    ...(name === null ? {} : { "vm.name": name }),
    ...(image === null ? {} : { "vm.image": image }),
  };
}

/** The reason is kept and shown only where it is our own text. */
function fault(what: "event_invalid" | "fault", thrown: unknown): Decision {
  const reason = thrown instanceof Failure ? messageOf(thrown) : "it cannot be judged: an internal error";
  return {
    action: "block",
    rule_id: `boundary.${what}`,
    reason,
    detection: "none",
    changes: [],
    explanation: { matched: [], why: "no_rule", allowed: [] },
  };
}
