import { hash as digest } from "node:crypto";
import type { LedgerRow, Outcome } from "@capsem/api";
import type { Decision, JsonValue, PolicySnapshot, StoredEvent } from "@capsem/policy";
import { LEDGER_LIMITS } from "../ledger/limits.ts";
import { canonicalJson } from "./canonical-json.ts";
import type { Judgement } from "./judgement.ts";
import { BOUNDARY_LIMITS } from "./limits.ts";
import type { ActRow, AnyRow, Redactor } from "./parts.ts";

/** Which event, when, and who asked: what all rows of one act have in common. */
export type Who = Pick<
  LedgerRow<"security_decision_events">,
  "event_id" | "time_ms" | "trace_id" | "turn_id" | "requester" | "client" | "token_id"
>;

export type Cell = string | number | boolean | null;
export type Cells = Readonly<Record<string, Cell>>;

export interface ActEnd {
  readonly outcome: Outcome;
  /** The kind of a failure; of a change of settings why, too. */
  readonly error: string | null;
  /** Of the doing; null where nothing was done. */
  readonly durationMs: number | null;
}

/** What rows of a decision are made of. */
export type Judged = Pick<Judgement, "stored" | "decision"> & {
  /** Null: no event could be made. */
  readonly event: object | null;
  readonly snapshot: RulesOf | null;
};
type RulesOf = Pick<PolicySnapshot, "digest" | "rules">;

/** The intent: the decision, the event that was judged, and the rules that matched. Secrets are replaced. */
export function decisionRows(who: Who, { stored, decision, snapshot, event }: Judged, redactor: Redactor) {
  const { body, isRedacted } = storedBody(stored, redactor);
  const hash = digest("sha256", body);
  const { recorded, more } = recordedRules(decision);
  const isInRow = body.length <= BOUNDARY_LIMITS.eventInRowCharactersMax;
  const rows: AnyRow[] = [];
  if (!isInRow) {
    rows.push({
      table: "event_body_blobs",
      row: { hash, kind: "event", original_bytes: Buffer.byteLength(body), is_truncated: false, body },
    });
  }
  rows.push({
    table: "security_decision_events",
    // Written out: these rows are made for every act and every call of a tool.
    row: {
      event_id: who.event_id,
      time_ms: who.time_ms,
      trace_id: who.trace_id,
      turn_id: who.turn_id,
      requester: who.requester,
      client: who.client,
      token_id: who.token_id,
      type: stored.type,
      action: decision.action,
      rule_id: decision.rule_id,
      reason: clean(decision.reason, redactor),
      detection: decision.detection,
      policy_digest: snapshot?.digest ?? "none",
      matched: matchedText(recorded, more, redactor),
      event_hash: hash,
      // Of an event that could not be made nothing is stored but its type.
      is_redacted: isRedacted || event === null,
      event: isInRow ? body : null,
    },
  });
  for (const rule of recorded) {
    rows.push({
      table: "security_rule_events",
      row: {
        event_id: who.event_id,
        time_ms: who.time_ms,
        rule_id: rule.rule_id,
        action: rule.action,
        priority: rule.priority,
        detection: rule.detection,
        has_won: rule.rule_id === decision.rule_id,
        fault: rule.fault === undefined ? null : clean(rule.fault, redactor),
        rule: clean(ruleText(snapshot, rule.rule_id), redactor),
        event_hash: hash,
      },
    });
  }
  return rows;
}

/** Canonical JSON, its names in order. */
function matchedText(recorded: Decision["explanation"]["matched"], more: number, redactor: Redactor): string {
  const items = recorded.map(({ action, detection, fault, priority, rule_id }) => {
    const shown = fault === undefined ? "null" : JSON.stringify(clean(fault, redactor));
    const [act, level, id] = [JSON.stringify(action), JSON.stringify(detection), JSON.stringify(rule_id)];
    return `{"action":${act},"detection":${level},"fault":${shown},"priority":${priority},"rule_id":${id}}`;
  });
  return `[${(more === 0 ? items : [...items, `{"more":${more}}`]).join(",")}]`;
}

/** The first of many that matched, and the winner wherever it is; how many more there were is said. */
function recordedRules({ explanation: { matched }, rule_id: winner }: Decision) {
  const { matchedRulesMax } = LEDGER_LIMITS;
  if (matched.length <= matchedRulesMax) return { recorded: matched, more: 0 };
  const first = matched.slice(0, matchedRulesMax);
  const won = matched.slice(matchedRulesMax).find(({ rule_id }) => rule_id === winner);
  const recorded = won === undefined ? first : [...first.slice(0, -1), won];
  return { recorded, more: matched.length - recorded.length };
}

/** The one row that ends an act. */
export function endRow(
  who: Who,
  { table, facts }: ActRow,
  added: Cells,
  decision: Decision,
  end: ActEnd,
  redactor: Redactor,
): AnyRow {
  // Cloned and written over, with its other columns by name: a row is made for each act, and this is the quick way.
  const cells: Record<string, Cell> = { ...facts };
  for (const column of Object.keys(added)) cells[column] = added[column] ?? null;
  for (const column of Object.keys(cells)) {
    const cell = cells[column];
    if (typeof cell === "string")
      cells[column] = isPreview(column) ? preview(cell, redactor) : clean(cell, redactor);
  }
  const row = {
    ...cells,
    event_id: who.event_id,
    time_ms: who.time_ms,
    trace_id: who.trace_id,
    turn_id: who.turn_id,
    requester: who.requester,
    client: who.client,
    token_id: who.token_id,
    decision: decision.action,
    rule_id: decision.rule_id,
    reason: clean(decision.reason, redactor),
    outcome: end.outcome,
    error: end.error === null ? null : clean(end.error, redactor),
    duration_ms: end.durationMs,
  };
  return { table, row } as unknown as AnyRow;
}

function isPreview(column: string): boolean {
  return column.endsWith("_preview");
}

/** The beginning of an output. Secrets go before it is cut, so that none is cut into halves that nobody knows. */
function preview(text: string, redactor: Redactor): string {
  const window = text.slice(0, BOUNDARY_LIMITS.previewCharactersMax + BOUNDARY_LIMITS.secretCharactersMax);
  const shown = redactor.text(window, { isCut: window.length < text.length }).text;
  return wellFormed(shown.slice(0, BOUNDARY_LIMITS.previewCharactersMax));
}

/** Without secrets, and without half characters: what a database stores must be what was hashed. */
export function clean(text: string, redactor: Redactor): string {
  return wellFormed(redactor.text(text).text);
}

export function wellFormed(text: string): string {
  return ANY_SURROGATE.test(text) ? text.replace(/\p{Surrogate}/gu, "\ufffd") : text;
}

/** Halves of pairs too: most texts have none at all. */
const ANY_SURROGATE = /[\ud800-\udfff]/;

/** Values are redacted field by field, so that no secret can be spelled like the names around them. */
function storedBody(stored: StoredEvent, redactor: Redactor): { body: string; isRedacted: boolean } {
  // Most events have no secret in them: then they are written as they are.
  let fields = stored.fields;
  let isRedacted = false;
  for (const path of Object.keys(stored.fields)) {
    const value = stored.fields[path];
    if (typeof value !== "object" && typeof value !== "string") continue;
    const replaced =
      typeof value === "string" ? redactedText(path, value, stored, redactor) : redactor.json(value);
    if (!replaced.isRedacted) continue;
    if (!isRedacted) fields = { ...fields };
    (fields as Record<string, JsonValue>)[path] = replaced.value;
    isRedacted = true;
  }
  const { type, event_id, trace_id, turn_id, generation } = stored;
  return { body: canonicalJson({ event_id, fields, generation, trace_id, turn_id, type }), isRedacted };
}

function redactedText(path: string, text: string, { fields }: StoredEvent, redactor: Redactor) {
  const isCut = fields[`${path.slice(0, path.indexOf("."))}.truncated`] === true;
  const { text: value, isRedacted } = redactor.text(text, { isCut });
  return { value, isRedacted };
}

const ruleTexts = new WeakMap<RulesOf, Map<string, string>>();

/** A rule as it was in force; made once for each snapshot. */
function ruleText(snapshot: RulesOf | null, id: string): string {
  if (snapshot === null) return "";
  const texts = ruleTexts.get(snapshot) ?? new Map<string, string>();
  ruleTexts.set(snapshot, texts);
  let text = texts.get(id);
  if (text === undefined) {
    const rule = snapshot.rules.find((each) => each.id === id);
    text = canonicalJson(
      rule === undefined
        ? { id }
        : {
            id,
            action: rule.action,
            match: rule.condition.source,
            detection_level: rule.detection,
            priority: rule.priority,
            reason: rule.reason,
          },
    );
    texts.set(id, text);
  }
  return text;
}
