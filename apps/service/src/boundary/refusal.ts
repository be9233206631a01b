import { apiFailure, type ErrorKind } from "@capsem/api";
import type { Failure } from "@capsem/base";
import { type Decision, reasonGiven } from "@capsem/policy";
import type { Judgement } from "./judgement.ts";
import type { ActDraft, AskEnd, Redactor } from "./parts.ts";
import { clean } from "./rows.ts";

type Drafted = Pick<ActDraft, "type" | "fields" | "does">;

/**
 * A rule's refusal in words that a model can act on: what was refused, by which rule, and why. What other rules allow
 * is not said: their conditions may be what is to be kept from whoever asks. A person has them from `rules evaluate`.
 */
export function blocked(
  draft: Drafted,
  { decision, needsFiles }: Pick<Judgement, "decision" | "needsFiles">,
  redactor: Redactor,
): Failure<ErrorKind> {
  const { rule_id } = decision;
  const text = `${cannot(draft)}: blocked by ${because(decision)}`;
  const facts = { rule_id, ...(needsFiles === true ? { needs_files: true } : {}) };
  return apiFailure("policy", clean(text, redactor), { facts });
}

/** An event that could not be made: what was asked for is at fault, not a rule. */
export function unjudgeable(draft: Drafted, decision: Decision, redactor: Redactor): Failure<ErrorKind> {
  return apiFailure("invalid_input", clean(`${cannot(draft)}: ${decision.reason}`, redactor));
}

export function notApproved(
  draft: Drafted,
  decision: Decision,
  { state, ask }: AskEnd,
  redactor: Redactor,
): Failure<ErrorKind> {
  const how = {
    approved: "it was approved",
    denied: `a person denied it${ask.note === null ? "" : ` (${ask.note})`}`,
    expired: "nobody answered in time",
    cancelled: "its caller left before anybody answered",
    pending: "a person has to allow it first",
  }[state];
  const text = `${cannot(draft)}: ${how}; asked by ${because(decision)} (${ask.id})`;
  return apiFailure("policy", clean(text, redactor), {
    facts: { rule_id: decision.rule_id, ask_id: ask.id },
    // What still waits may be approved, and then serves a retry.
    retryable: ask.state === "pending" || (ask.state === "approved" && !ask.is_used),
  });
}

/** The rule, and its reason where it has one. */
function because(decision: Decision): string {
  const reason = reasonGiven(decision);
  return reason === "" ? decision.rule_id : `${decision.rule_id}: ${reason}`;
}

function cannot({ type, fields, does }: Drafted): string {
  if (does !== undefined) return `Cannot ${does}`;
  if (type === "vm.lifecycle") return `Cannot ${fields["vm.lifecycle.action"] ?? "change"} the VM`;
  return `Cannot ${VERBS[type] ?? "do this"}`;
}

const VERBS: Readonly<Partial<Record<ActDraft["type"], string>>> = {
  "process.exec": "run the command",
  "process.exec_complete": "give what the command wrote, which has run",
  "file.import": "import the file",
  "file.export": "export the file",
  "file.event": "change the file",
  "settings.change": "change the setting",
};
