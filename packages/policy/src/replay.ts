import { Failure } from "@capsem/base";
import type { Facts } from "./cel/evaluate.ts";
import { createMeter, SPENT } from "./cel/meter.ts";
import { HIDDEN, type Outcome } from "./cel/outcome.ts";
import { type Decision, decide, decideUnindexed } from "./decide.ts";
import { eventFromJson, fieldsMadeWith, type SecurityEvent } from "./event/event.ts";
import { canBeCut, fieldRow } from "./event/field-table.ts";
import { isRedacted } from "./redaction.ts";
import { type DecisionAction, isDeciding, type Rule } from "./rule.ts";
import type { PolicySnapshot } from "./snapshot.ts";

/** What is compared of the decision of back then. Without `changes`, only the actions are. */
export interface WasDecision {
  readonly action: DecisionAction;
  readonly rule_id: string;
  readonly changes?: readonly string[] | undefined;
}

/** Plain data. `why` is for the person who tries rules on what has happened. */
export type Replay =
  | { readonly kind: "same"; readonly was: WasDecision; readonly now: Decision }
  | {
      readonly kind: "different";
      readonly was: WasDecision;
      readonly now: Decision;
      readonly why: string;
    }
  | {
      readonly kind: "undecidable";
      readonly why: string;
      /** What is no longer known, of that which the rules below read. */
      readonly fields: readonly string[];
      /** Rules that would decide otherwise for some text that may have stood there. */
      readonly rules: readonly string[];
    };

export interface ReplayOptions {
  /** Fields that whoever stored the event cut or replaced without a trace in the event itself. */
  readonly isHidden?: (path: string) => boolean;
}

/**
 * Judges a stored event with other rules. A field that was cut or redacted counts as unknown, and the answer is
 * "undecidable" only where some content of it would change the action, or what a rule changes. `now.rule_id` may
 * then be one of several rules that decide the same.
 */
export function replay(
  stored: unknown,
  was: WasDecision,
  snapshot: PolicySnapshot,
  options: ReplayOptions = {},
): Replay {
  const event = readStored(stored);
  if (typeof event === "string") return { kind: "undecidable", why: event, fields: [], rules: [] };
  const hidden = hiddenFields(event, options);
  if (hidden.size === 0) return compared(was, decide(snapshot, event));
  const facts: Facts = new Map<string, Outcome>([...event.facts, ...[...hidden].map(veiled)]);
  const now = decideUnindexed(snapshot, { type: event.type, facts });
  const spent = now.explanation.matched.find(({ fault }) => fault === SPENT.fault);
  if (spent !== undefined) {
    // What is hidden is worked through whatever it was; the act itself may have taken less.
    return { kind: "undecidable", why: now.reason, fields: [...hidden], rules: [spent.rule_id] };
  }
  const meter = createMeter();
  const open = snapshot.rules.filter(
    (rule) =>
      canChange(rule, now) && hasAllNeeded(rule, facts) && isOpen(rule.condition.evaluate(facts, meter)),
  );
  if (open.length === 0) return compared(was, now);
  const fields = [...hidden].filter((path) => open.some(({ reads }) => reads.values.has(path)));
  const rules = open.map(({ id }) => id);
  const more = rules.length === 1 ? "" : ` and ${rules.length - 1} more`;
  const why = `rule "${rules[0]}"${more} would have to read ${fields.join(", ")}, which was cut or redacted`;
  return { kind: "undecidable", why, fields, rules };
}

const veiled = (path: string) => [path, HIDDEN] as const;

/** The event, or why it is none: the field table of today may be another than that of back then. */
function readStored(stored: unknown): SecurityEvent | string {
  try {
    return eventFromJson(stored);
  } catch (error) {
    if (error instanceof Failure) return error.message;
    throw error;
  }
}

function hiddenFields(event: SecurityEvent, { isHidden }: ReplayOptions): ReadonlySet<string> {
  const hidden = new Set<string>();
  for (const [path, value] of event.facts) {
    const row = fieldRow(path);
    if (row === undefined || path === "event.type") continue;
    // The flag is the root's, so any field of the root that can be cut may be the one.
    const isCut = canBeCut(row) && event.facts.get(`${path.slice(0, path.indexOf("."))}.truncated`) === true;
    if (!isCut && !isRedacted(value) && isHidden?.(path) !== true) continue;
    for (const name of [path, ...fieldsMadeWith(path)]) if (event.facts.has(name)) hidden.add(name);
  }
  return hidden;
}

/** What is not known, or too much work to know, may be anything. */
export function isOpen(outcome: Outcome): boolean {
  return outcome === HIDDEN || outcome === SPENT;
}

/** Without one of these the condition is absent or false, whatever was hidden. */
export function hasAllNeeded(rule: Rule, facts: Facts): boolean {
  return [...rule.guard.needs].every((path) => facts.has(path));
}

/**
 * Whether a rule of which nothing is known would make the act end otherwise. It may match, not match, or fault,
 * and a fault blocks.
 */
function canChange(rule: Rule, now: Decision): boolean {
  const winner = now.explanation.matched.find(({ rule_id }) => rule_id === now.rule_id);
  const priority = winner?.priority ?? Number.POSITIVE_INFINITY;
  if (now.action === "block") {
    return rule.priority < priority && isDeciding(rule.action) && rule.action !== "block";
  }
  return rule.priority <= priority || !isDeciding(rule.action);
}

function compared(was: WasDecision, now: Decision): Replay {
  const why = difference(was, now);
  return why === undefined ? { kind: "same", was, now } : { kind: "different", was, now, why };
}

function difference(was: WasDecision, now: Decision): string | undefined {
  if (was.action !== now.action) {
    return `${was.action} by ${was.rule_id} would be ${now.action} by ${now.rule_id}: ${now.reason}`;
  }
  // What is blocked is not changed: nothing of it goes on.
  if (was.changes === undefined || now.action === "block") return undefined;
  if (was.changes.join("\n") === now.changes.join("\n")) return undefined;
  const names = (ids: readonly string[]) => (ids.length === 0 ? "nothing" : ids.join(", "));
  return `${now.action} as before, but changed by ${names(now.changes)} instead of ${names(was.changes)}`;
}
