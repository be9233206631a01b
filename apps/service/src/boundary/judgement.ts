import { Failure, messageOf } from "@capsem/base";
import {
  type Decision,
  decide,
  type EventIdentity,
  type FieldPath,
  type PolicySnapshot,
  ruleThatHangs,
  type SecurityEvent,
  type StoredEvent,
  securityEvent,
} from "@capsem/policy";
import type { ActDraft, PolicySource } from "./parts.ts";
import { ruleOfFiles } from "./tree-rules.ts";

/** What was judged, by which rules, and how. */
export interface Judgement {
  /** Null: no event could be made of it, and it is refused. */
  readonly event: SecurityEvent | null;
  readonly stored: StoredEvent;
  readonly decision: Decision;
  /** Null: there were no rules to judge by, and it is refused. */
  readonly snapshot: PolicySnapshot | null;
  /** A tree that is refused because a rule judges its files one by one: each of them may be allowed. */
  readonly needsFiles?: true;
}

/** Never throws: what cannot be judged is blocked, with the reason. */
export function judge(
  policy: PolicySource,
  identity: EventIdentity,
  { type, vm, fields, isTree, unseen }: Pick<ActDraft, "type" | "vm" | "fields" | "isTree" | "unseen">,
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
    const judgement = { event, stored: event.toJSON(), decision: decide(snapshot, event), snapshot };
    if (unseen !== undefined) return ofPart(judgement, unseen);
    return isTree === true ? ofTree(judgement) : judgement;
  } catch (thrown) {
    return { event, stored: event.toJSON(), decision: fault("fault", thrown), snapshot };
  }
}

type Judged = Judgement & { readonly event: SecurityEvent; readonly snapshot: PolicySnapshot };

function ofTree(judgement: Judged): Judgement {
  const { snapshot, event, decision } = judgement;
  const rule = decision.action === "block" ? null : ruleOfFiles(snapshot, event, decision);
  if (rule === null) return judgement;
  const reason = "it judges single files; copy them one by one";
  return {
    ...judgement,
    needsFiles: true,
    decision: { ...decision, action: "block", rule_id: rule.id, reason },
  };
}

function ofPart(judgement: Judged, unseen: readonly FieldPath[]): Judgement {
  const { snapshot, event, decision } = judgement;
  const rule = decision.action === "block" ? undefined : ruleThatHangs(snapshot, event, decision, unseen);
  if (rule === undefined) return judgement;
  const reason = "it judges whole files, and this is a part of one; copy the file whole";
  return { ...judgement, decision: { ...decision, action: "block", rule_id: rule, reason } };
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
