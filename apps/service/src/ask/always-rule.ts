import { createHash } from "node:crypto";
import { apiFailure } from "@capsem/api";
import { messageOf } from "@capsem/base";
import {
  allowRuleFor,
  type Decision,
  eventFromJson,
  type PolicyEdit,
  type SecurityEvent,
} from "@capsem/policy";
import type { AskRecord } from "./ask-record.ts";

/** The edit that allows exactly what was asked for from now on. Throws Failure "locked" with the reason why none does. */
export function alwaysRule({ ask, always }: AskRecord): PolicyEdit {
  if (always === null) throw locked(ask.id, "what was asked for is not known any more");
  // It was a decision when it was written, and its file is ours.
  const rule = allowRuleFor(eventOf(ask.id, always.event), always.decision as unknown as Decision, sha256);
  if (rule.kind === "none") throw locked(ask.id, rule.reason);
  return rule.edit;
}

/** Whose secret was replaced may be no event any more: a marker is no host. */
function eventOf(id: string, stored: unknown): SecurityEvent {
  try {
    return eventFromJson(stored);
  } catch (thrown) {
    throw locked(id, messageOf(thrown), thrown);
  }
}

function locked(id: string, reason: string, cause?: unknown): Error {
  return apiFailure("locked", `Cannot approve "${id}" for always: ${reason}`, { cause });
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
