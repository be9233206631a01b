import { Failure } from "@capsem/base";
import { type Decision, reasonGiven } from "@capsem/policy";
import type { AskEnd } from "../record/recorder.ts";

/**
 * A rule's refusal in words that a model can act on: what was refused, by which rule, and why. What other rules allow is
 * not said: their conditions may be what is to be kept from whoever asks.
 */
export function blocked(what: string, decision: Decision): Failure {
  const { rule_id, reason } = decision;
  return new Failure("policy", `Cannot ${what}: blocked by ${because(decision)}`, {
    facts: { rule_id, reason },
  });
}

export function notApproved(
  what: string,
  decision: Decision,
  { state, ask_id, note, retryable }: AskEnd,
): Failure {
  const how = {
    approved: "it was approved",
    denied: `a person denied it${note === null ? "" : ` (${note})`}`,
    expired: "nobody answered in time",
    cancelled: "its caller left before anybody answered",
    pending: "a person has to allow it first",
  }[state];
  const { rule_id, reason } = decision;
  // Where the rules have changed meanwhile, nothing was asked.
  const which = ask_id === "" ? "" : ` (${ask_id})`;
  const text = `Cannot ${what}: ${how}; asked by ${because(decision)}${which}`;
  return new Failure("policy", text, { facts: { rule_id, reason, ask_id }, retryable });
}

/** The rule, and its reason where it has one. */
function because(decision: Decision): string {
  const reason = reasonGiven(decision);
  return reason === "" ? decision.rule_id : `${decision.rule_id}: ${reason}`;
}

/** An event that could not be made: what was asked for is at fault, not a rule. */
export function unjudgeable(what: string, decision: Decision): Failure {
  const { rule_id, reason } = decision;
  return new Failure("unjudgeable", `Cannot ${what}: ${reason}`, { facts: { rule_id, reason } });
}
