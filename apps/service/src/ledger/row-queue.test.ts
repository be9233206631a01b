import { LEDGER_TABLES, type LedgerRow } from "@capsem/api";
import { expect, test } from "vitest";
import type { AnyRow } from "../boundary/parts.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { areEssential, bytesOf, encodeRow } from "./row-code.ts";
import { RowQueue } from "./row-queue.ts";

function body(n: number, text = ""): AnyRow {
  const facts = { hash: `${n}`, kind: "event", original_bytes: 0, is_truncated: false };
  return { table: "event_body_blobs", row: { ...facts, body: text } };
}

const numbersOf = (rows: readonly (string | number | null)[][]) => rows.map((row) => Number(row[1]));

test("rows leave in the order in which they came, and weigh nothing afterwards", () => {
  const weight = { characters: 0 };
  const queue = new RowQueue(weight);
  for (let n = 0; n < 5_000; n++) expect(queue.push([body(n, "x")], false)).toBe(true);
  const seen: number[] = [];
  while (queue.length > 0) {
    const { rows, fault } = queue.gather(false);
    expect(fault).toBeNull();
    expect(rows.length).toBeLessThanOrEqual(LEDGER_LIMITS.batchRowsMax);
    seen.push(...numbersOf(rows));
    // Some of a batch may come back.
    const left = queue.drop(Math.ceil(rows.length / 2));
    seen.length -= rows.length - left.length;
  }
  expect(seen).toEqual(Array.from({ length: 5_000 }, (_, n) => n));
  expect([weight.characters, queue.taken, queue.done]).toEqual([0, 5_000, 5_000]);
  expect(queue.gather(false)).toEqual({ rows: [], fault: null });
});

test("alone are those that came together", () => {
  const queue = new RowQueue({ characters: 0 });
  queue.push([body(0), body(1)], false);
  queue.push([body(2)], false);
  expect(numbersOf(queue.gather(true).rows)).toEqual([0, 1]);
  queue.drop(1);
  expect(numbersOf(queue.gather(true).rows)).toEqual([1]);
  queue.drop(1);
  expect(numbersOf(queue.gather(true).rows)).toEqual([2]);
});

test("a row that lacks a column is met when it is first, after those before it", () => {
  const queue = new RowQueue({ characters: 0 });
  const lacking = { table: "event_body_blobs", row: { hash: "1" } } as unknown as AnyRow;
  queue.push([body(0), lacking, body(2)], false);
  expect(numbersOf(queue.gather(false).rows)).toEqual([0]);
  queue.drop(1);
  expect(queue.gather(false)).toMatchObject({ rows: [], fault: "a row of event_body_blobs has no kind" });
  queue.drop(1);
  expect(numbersOf(queue.gather(false).rows)).toEqual([2]);
});

const RULE: LedgerRow<"security_rule_events"> = {
  ...{ event_id: "e", time_ms: 5, rule_id: "r", action: "allow", priority: 3, detection: "none" },
  ...{ has_won: true, fault: null, rule: "text", event_hash: "h" },
};

test("a row is its table's name and its columns in order, flags as numbers", () => {
  const row = encodeRow({ table: "security_rule_events", row: RULE });
  expect(row).toEqual(["security_rule_events", "e", 5, "r", "allow", 3, "none", 1, null, "text", "h"]);
  expect(row).toHaveLength(Object.keys(LEDGER_TABLES.security_rule_events.columns).length + 1);
  expect(bytesOf(["é", 1, null])).toBe(20);
});

test.each([
  ["ASCII", "x".repeat(300_000)],
  ["characters of two bytes", "é".repeat(140_000)],
  ["characters of four bytes", "😀".repeat(70_000)],
])("a text beyond what a field takes is cut and says so: %s", (_name, text) => {
  const cut = String(encodeRow({ table: "security_rule_events", row: { ...RULE, rule: text } })[9]);
  expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(LEDGER_LIMITS.textBytesMax);
  expect(Buffer.byteLength(cut)).toBeGreaterThan(LEDGER_LIMITS.textBytesMax - 16);
  expect(cut).toMatch(/[xé😀] \[cut\]$/u);
  expect(cut).not.toContain("\ufffd");
});

test("a text that just fits, and a body however long, stay as they are: a body's hash is over all of it", () => {
  const fits = "x".repeat(LEDGER_LIMITS.textBytesMax);
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
