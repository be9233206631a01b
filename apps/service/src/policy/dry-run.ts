import { apiFailure, type DecisionInfo } from "@capsem/api";
import {
  type Decision,
  type EventFields,
  type EventType,
  type PolicySnapshot,
  renderDecision,
} from "@capsem/policy";
import { judge } from "../boundary/judgement.ts";
import type { VmFacts } from "../boundary/parts.ts";

/** No event has it: nothing was done. */
const NO_EVENT = "000000000000";

export interface DryRun {
  readonly decision: DecisionInfo;
  readonly text: string;
}

/** What the boundary would decide of such an act. Throws Failure "invalid_input" for what is no event. */
export function dryRun(
  snapshot: PolicySnapshot,
  { type, fields }: { readonly type: string; readonly fields: Readonly<Record<string, unknown>> },
  vm: VmFacts | null,
): DryRun {
  // Type and fields are checked when the event is made of them, by who knows what they could have meant.
  const draft = { type: type as EventType, vm, fields: fields as EventFields };
  const { event, decision } = judge({ snapshot: () => snapshot }, { event_id: NO_EVENT }, draft);
  if (event === null) throw apiFailure("invalid_input", decision.reason);
  return { decision: decisionInfo(decision), text: renderDecision(decision) };
}

function decisionInfo({ explanation, action, rule_id, reason, detection, changes }: Decision): DecisionInfo {
  return {
    ...{ action, rule_id, reason, detection, changes: [...changes], why: explanation.why },
    matched: explanation.matched.map((rule) => ({ ...rule, fault: rule.fault ?? null })),
    allowed: explanation.allowed.map(({ rule_id, match }) => ({ rule_id, match })),
  };
}
