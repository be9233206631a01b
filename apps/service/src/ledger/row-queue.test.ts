import { LEDGER_TABLES, type LedgerRow } from "@capsem/api";
import { LEDGER_ROW_LIMITS } from "@capsem/api/ledger-row";
import { expect, test } from "vitest";
import type { AnyRow } from "../boundary/parts.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { areEssential, type Encoded, encoded as encodedRow, encodeRow } from "./row-code.ts";
import { RowQueue } from "./row-queue.ts";

const BODY = { kind: "event", original_bytes: 0, is_truncated: false } as const;

function body(n: number, text = ""): AnyRow {
  return { table: "event_body_blobs", row: { ...BODY, hash: `${n}`, body: text } };
}

function encoded(n: number, text = ""): Encoded {
  return encodedRow(body(n, text));
}

const numbersOf = (rows: readonly Encoded[]) => rows.map(({ wire }) => Number(wire[1]));

test("rows leave in the order in which they came, and weigh nothing afterwards", () => {
  const weight = { characters: 0 };
  const queue = new RowQueue(weight);
  for (let n = 0; n < 5_000; n++) expect(queue.push([encoded(n, "x")], false)).toBe(true);
  const seen: number[] = [];
  while (queue.length > 0) {
    const rows = queue.gather(false);
    expect(rows.length).toBeLessThanOrEqual(LEDGER_LIMITS.batchRowsMax);
    seen.push(...numbersOf(rows));
    // Some of a batch may come back.
    const left = queue.drop(Math.ceil(rows.length / 2));
    seen.length -= rows.length - left.length;
  }
  expect(seen).toEqual(Array.from({ length: 5_000 }, (_, n) => n));
  expect([weight.characters, queue.taken, queue.done]).toEqual([0, 5_000, 5_000]);
  expect(queue.gather(false)).toEqual([]);
});

test("alone are those that came together", () => {
  const queue = new RowQueue({ characters: 0 });
  queue.push([encoded(0), encoded(1)], false);
  queue.push([encoded(2)], false);
  expect(numbersOf(queue.gather(true))).toEqual([0, 1]);
  queue.drop(1);
  expect(numbersOf(queue.gather(true))).toEqual([1]);
  queue.drop(1);
  expect(numbersOf(queue.gather(true))).toEqual([2]);
});

const RULE: LedgerRow<"security_rule_events"> = {
  ...{ event_id: "e", time_ms: 5, rule_id: "r", action: "allow", priority: 3, detection: "none" },
  ...{ has_won: true, fault: null, rule: "text", event_hash: "h" },
};

test("a row is its table's name and its columns in order, flags as numbers", () => {
  const row = encodeRow({ table: "security_rule_events", row: RULE });
  expect(row).toEqual(["security_rule_events", "e", 5, "r", "allow", 3, "none", 1, null, "text", "h"]);
  expect(row).toHaveLength(Object.keys(LEDGER_TABLES.security_rule_events.columns).length + 1);
  const made = encodedRow({ table: "event_body_blobs", row: { ...BODY, hash: "é", body: "éé" } });
  expect(made.text).toBe('["event_body_blobs","é","event",0,0]');
  // What is sent of it: its text, and its body apart.
  expect(made.bytes).toBe(Buffer.byteLength(made.text) + 4);
});

test.each([
  ["ASCII", "x".repeat(300_000)],
  ["characters of two bytes", "é".repeat(140_000)],
  ["characters of four bytes", "😀".repeat(70_000)],
])("a text beyond what a field takes is cut and says so: %s", (_name, text) => {
  const cut = String(encodeRow({ table: "security_rule_events", row: { ...RULE, rule: text } })[9]);
  expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(LEDGER_ROW_LIMITS.textBytesMax);
  expect(Buffer.byteLength(cut)).toBeGreaterThan(LEDGER_ROW_LIMITS.textBytesMax - 16);
  expect(cut).toMatch(/[xé😀] \[cut\]$/u);
  expect(cut).not.toContain("\ufffd");
});

test("a text that just fits, and a body however long, stay as they are: a body's hash is over all of it", () => {
  const fits = "x".repeat(LEDGER_ROW_LIMITS.textBytesMax);
  expect(encodeRow({ table: "security_rule_events", row: { ...RULE, rule: fits } })[9]).toBe(fits);
  const long = "x".repeat(1_000_000);
  expect(encodeRow(body(0, long)).at(-1)).toBe(long);
});

test.each<[boolean, string, readonly unknown[]]>([
  [true, "the end of a job", [{ table: "exec_events", row: {} }]],
  [
    true,
    "an end of each kind",
    ["fs_events", "lifecycle_events", "policy_mutations"].map((table) => ({ table, row: {} })),
  ],
  [
    true,
    "the intent to delete, with its event",
    [body(0), { table: "security_decision_events", row: { type: "vm.lifecycle" } }],
  ],
  [true, "a change of settings", [{ table: "security_decision_events", row: { type: "settings.change" } }]],
  [false, "the intent to run a job", [{ table: "security_decision_events", row: { type: "process.exec" } }]],
  [false, "an end beside a beginning", [{ table: "exec_events", row: {} }, body(0)]],
  [false, "an ask", [{ table: "security_ask_events", row: {} }]],
])("a full ledger: %s for %s", (isTaken, _name, rows) => {
  expect(areEssential(rows as readonly AnyRow[])).toBe(isTaken);
});
