import { createHash } from "node:crypto";
import type { Decision } from "@capsem/policy";
import { expect, test } from "vitest";
import { LEDGER_LIMITS } from "../ledger/limits.ts";
import { encodeRow } from "../ledger/row-code.ts";
import type { Judgement } from "./judgement.ts";
import { BOUNDARY_LIMITS } from "./limits.ts";
import type { AnyRow, Redactor } from "./parts.ts";
import { decisionRows } from "./rows.ts";

const PLAIN: Redactor = {
  text: (text) => ({ text, isRedacted: false }),
  json: (value) => ({ value, isRedacted: false }),
};
const WHO = {
  ...{ event_id: "0123456789ab", time_ms: 1, trace_id: null, turn_id: null },
  ...{ requester: "user uid 1", client: null, token_id: null },
};

/** As many rules as a file may have, each with all that a rule may say. */
function judged(count: number, winner: number, fault?: string): Judgement {
  const matched = Array.from({ length: count }, (_, n) => ({
    ...{
      rule_id: `user.${"r".repeat(60)}${n}`,
      action: "allow" as const,
      priority: n,
      detection: "none" as const,
    },
    ...(fault === undefined ? {} : { fault }),
  }));
  const decision = {
    ...{ action: "allow", rule_id: matched[winner]?.rule_id, reason: "", detection: "none", changes: [] },
    explanation: { matched, why: "priority", allowed: [] },
  } as unknown as Decision;
  return {
    event: null,
    stored: { type: "process.exec", event_id: "e", fields: {} },
    decision,
    snapshot: null,
  };
}

function matchedOf(rows: readonly AnyRow[]): unknown[] {
  const texts = rows.flatMap(({ table, row }) => (table === "security_decision_events" ? [row.matched] : []));
  return JSON.parse(texts[0] ?? "null") as unknown[];
}

const { matchedRulesMax } = LEDGER_LIMITS;

test.each([
  ["the first", 0],
  ["the last", 1_949],
])("an act that 1,950 rules match is recorded with the first of them, and %s, which won", (_, winner) => {
  const judgement = judged(1_950, winner, "it cannot be evaluated: ".repeat(30));
  const rows = decisionRows(WHO, judgement, PLAIN);
  const ofRules = rows.flatMap((each) => (each.table === "security_rule_events" ? [each.row] : []));
  expect(ofRules).toHaveLength(matchedRulesMax);
  expect(ofRules.filter(({ has_won }) => has_won).map(({ rule_id }) => rule_id)).toEqual([
    judgement.decision.rule_id,
  ]);
  const matched = matchedOf(rows);
  expect(matched).toHaveLength(matchedRulesMax + 1);
  expect(matched.at(-1)).toEqual({ more: 1_950 - matchedRulesMax });
  // And every ledger takes it.
  for (const row of rows) expect(() => encodeRow(row)).not.toThrow();
});

test("of an act that few rules match all are recorded", () => {
  const rows = decisionRows(WHO, judged(matchedRulesMax, 3), PLAIN);
  expect(rows).toHaveLength(1 + matchedRulesMax);
  const matched = matchedOf(rows);
  expect(matched).toHaveLength(matchedRulesMax);
  expect(matched[0]).toEqual({
    ...{ rule_id: `user.${"r".repeat(60)}0`, action: "allow", priority: 0, detection: "none", fault: null },
  });
});

test.each([
  { is: "small", more: 0, tables: ["security_decision_events"] },
  { is: "large", more: 1, tables: ["event_body_blobs", "security_decision_events"] },
])("a $is event is stored once, under its hash", ({ more, tables }) => {
  const around = decisionRows(WHO, withCommand(""), PLAIN).flatMap(eventsOf)[0]?.length ?? 0;
  const command = "x".repeat(BOUNDARY_LIMITS.eventInRowCharactersMax - around + more);
  const rows = decisionRows(WHO, withCommand(command), PLAIN);
  expect(rows.map(({ table }) => table)).toEqual([...tables, "security_rule_events"]);
  const events = rows.flatMap(eventsOf);
  expect(events).toHaveLength(1);
  expect(events[0]).toContain(command);
  const hash = createHash("sha256")
    .update(events[0] ?? "")
    .digest("hex");
  expect(rows.at(-1)?.row).toMatchObject({ event_hash: hash });
  for (const row of rows) expect(() => encodeRow(row)).not.toThrow();
});

function withCommand(command: string): Judgement {
  const stored = { type: "process.exec", event_id: "e", fields: { "process.command": command } } as const;
  return { ...judged(1, 0), stored };
}

function eventsOf({ table, row }: AnyRow): string[] {
  if (table === "event_body_blobs") return [row.body];
  return table === "security_decision_events" && row.event !== null ? [row.event] : [];
}
