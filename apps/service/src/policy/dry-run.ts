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
import { type Completed, completedCall, type KnownTools } from "./known-call.ts";

/** No event has it: nothing was done. */
const NO_EVENT = "000000000000";

export interface DryRun {
  readonly decision: DecisionInfo;
  readonly text: string;
}

/**
 * What the boundary would decide of such an act; of a tool that the service knows, what it would of a real call, and the
 * text says what was filled in for that. Throws Failure "invalid_input" for what is no event.
 */
export function dryRun(
  snapshot: PolicySnapshot,
  given: { readonly type: string; readonly fields: Readonly<Record<string, unknown>> },
  vm: VmFacts | null,
  known: KnownTools,
): DryRun {
  const completed = completedCall(given, known);
  // Type and fields are checked when the event is made of them, by who knows what they could have meant.
  const draft = { type: given.type as EventType, vm, fields: completed.fields as EventFields };
  const { event, decision } = judge({ snapshot: () => snapshot }, { event_id: NO_EVENT }, draft);
  if (event === null) throw apiFailure("invalid_input", decision.reason);
  return { decision: decisionInfo(decision), text: `${renderDecision(decision)}${filledText(completed)}` };
}

function filledText({ filled, missing }: Completed): string {
  const lines = [
    ...(filled.length === 0 ? [] : [`  filled in    ${filled.join(", ")}`]),
    ...(missing === null ? [] : [`  not known    ${missing}`]),
  ];
  return lines.map((line) => `\n${line}`).join("");
}

function decisionInfo({ explanation, action, rule_id, reason, detection, changes }: Decision): DecisionInfo {
  return {
    ...{ action, rule_id, reason, detection, changes: [...changes], why: explanation.why },
    matched: explanation.matched.map((rule) => ({ ...rule, fault: rule.fault ?? null })),
    allowed: explanation.allowed.map(({ rule_id, match }) => ({ rule_id, match })),
  };
}
