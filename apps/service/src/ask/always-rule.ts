import { createHash } from "node:crypto";
import { apiFailure } from "@capsem/api";
import { messageOf } from "@capsem/base";
import {
  type AllowRule,
  allowRuleFor,
  type Decision,
  eventFromJson,
  type PolicyEdit,
  ruleId,
} from "@capsem/policy";
import type { AskRecord } from "./ask-record.ts";

/**
 * The edit that allows exactly what was asked for from now on. Throws with the reason why none does: Failure "locked"
 * where the corporation's rule asked, otherwise "wrong_state".
 */
export function alwaysRule(record: AskRecord): PolicyEdit {
  const found = foundRule(record);
  if (found.kind === "edit") return found.edit;
  const { id, rule_id } = record.ask;
  const kind = rule_id.startsWith(ruleId("corp", "")) ? "locked" : "wrong_state";
  throw apiFailure(kind, `Cannot approve "${id}" for always: ${found.reason}`);
}

export function hasAlwaysRule(record: AskRecord): boolean {
  return foundRule(record).kind === "edit";
}

/** Of one ask it is always the same, and an ask is shown often. */
const known = new WeakMap<NonNullable<AskRecord["always"]>, AllowRule>();

function foundRule({ ask, always, only_once }: AskRecord): AllowRule {
  if (only_once !== null) return { kind: "none", reason: only_once };
  if (always === null) return { kind: "none", reason: "what was asked for is not known any more" };
  const before = known.get(always);
  if (before !== undefined) return before;
  const made = always.bound.length > 0 ? unnamed(always.bound, ask.vm_id !== null) : madeRule(always);
  known.set(always, made);
  return made;
}

/** A rule sees fields alone: it would allow the act with any other of these. */
function unnamed(bound: readonly string[], hasVm: boolean): AllowRule {
  const names = bound.map((name) => `its ${name}`).join(", ");
  const instead = hasVm ? "approve it once, or for its VM" : "approve it once";
  return { kind: "none", reason: `no rule can name ${names}; ${instead}` };
}

function madeRule({ event, decision, labels }: NonNullable<AskRecord["always"]>): AllowRule {
  try {
    // It was a decision when it was written, and its file is ours.
    return allowRuleFor(eventFromJson(event), decision as unknown as Decision, sha256, labels);
  } catch (thrown) {
    // Whose secret was replaced may be no event any more: a marker is no host.
    return { kind: "none", reason: messageOf(thrown) };
  }
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
