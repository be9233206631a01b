// Whatever stands in a column: it is stored, cut where it is too long, or refused at once. Nothing that was taken is lost.
import { LEDGER_TABLE_NAMES, type LedgerTable } from "@capsem/api";
import { sha256 } from "@capsem/api/ledger-chain";
import { LEDGER_COLUMNS, LEDGER_ROW_LIMITS, type LedgerColumn } from "@capsem/api/ledger-row";
import { parseRow } from "@capsem/ledger";
import { expect, test } from "vitest";
import { canonicalJson } from "../boundary/canonical-json.ts";
import type { AnyRow } from "../boundary/parts.ts";
import { useLedgers, VM } from "../testing/ledger-rig.ts";
import { encodeRow } from "./row-code.ts";

const rigOf = useLedgers();
const LONG = 300_000;
const { textBytesMax } = LEDGER_ROW_LIMITS;

const TEXTS: readonly unknown[] = [
  "allow",
  "done",
  "",
  "x".repeat(LONG),
  "é".repeat(LONG),
  "😀".repeat(LONG),
  "\0".repeat(LONG),
  '"'.repeat(LONG),
  `${"x".repeat(textBytesMax - 1)}😀`,
  "\ud800",
  `\udc00${"\ud83d".repeat(LONG)}`,
  "a\0b",
];
const JSONS: readonly unknown[] = [
  ...TEXTS,
  "null",
  "{",
  JSON.stringify("x".repeat(LONG)),
  JSON.stringify("\ud800".repeat(LONG)),
  JSON.stringify({ a: "é".repeat(LONG) }),
  JSON.stringify(Array(LONG).fill("x")),
  JSON.stringify(Array(3).fill("x".repeat(LONG))),
  JSON.stringify([...Array(LONG).fill({ rule_id: "r" }), { more: 7 }]),
  "[".repeat(LONG) + "]".repeat(LONG),
];
const NUMBERS: readonly unknown[] = [
  0,
  -1,
  1.5,
  2 ** 53,
  -(2 ** 60),
  1e300,
  Number.NaN,
  Number.POSITIVE_INFINITY,
];
const OTHERS: readonly unknown[] = [true, null, undefined, {}, [], 5n, Symbol("x"), new Date(0), () => 1];

const HOSTILE: Readonly<Record<LedgerColumn["kind"], readonly unknown[]>> = {
  text: [...TEXTS, ...NUMBERS, ...OTHERS],
  json: [...JSONS, ...NUMBERS, ...OTHERS],
  int: [...NUMBERS, ...OTHERS, "1", ""],
  real: [...NUMBERS, ...OTHERS, "1"],
  flag: [...NUMBERS, ...OTHERS, "1", 2],
  time: [...NUMBERS, ...OTHERS, "1", 8.64e15 + 2],
};

/** A row that its table takes. */
function plain(table: LedgerTable): Record<string, unknown> {
  const known: Readonly<Record<string, unknown>> = {
    ...{ action: "allow", decision: "allow", outcome: "done", body: "x", hash: sha256("x") },
  };
  return Object.fromEntries(
    LEDGER_COLUMNS[table].map(({ name, kind, isOptional }) => {
      if (known[name] !== undefined) return [name, known[name]];
      return [name, isOptional ? null : kind === "text" ? "t" : kind === "json" ? "[]" : 0];
    }),
  );
}

const COLUMNS = LEDGER_TABLE_NAMES.flatMap((table) =>
  LEDGER_COLUMNS[table].map((column) => [table, column.name, column] as const),
);

test.each(COLUMNS)("%s %s holds what it can, and the rest is refused at once", (table, _, column) => {
  let taken = 0;
  for (const value of HOSTILE[column.kind]) {
    const row = { ...plain(table), [column.name]: value };
    // A body is sent with its hash by whoever makes it.
    if (column.name === "body" && typeof value === "string") row.hash = sha256(value);
    if (column.name === "event" && typeof value === "string") row.event_hash = sha256(value);
    if (column.name === "hash" && table === "event_body_blobs") continue;
    let wire: ReturnType<typeof encodeRow>;
    try {
      wire = encodeRow({ table, row } as unknown as AnyRow);
    } catch {
      continue;
    }
    taken += 1;
    expect(parseRow(wire)).toBe(wire);
  }
  if (column.name !== "hash") expect(taken).toBeGreaterThan(0);
});

test("a list that is too long keeps its beginning and says how many more there were", () => {
  const rules = Array.from({ length: 20_000 }, (_, n) => ({ rule_id: `rule.${n}`, fault: "é".repeat(20) }));
  const row = { ...plain("security_decision_events"), matched: canonicalJson([...rules, { more: 500 }]) };
  const wire = encodeRow({ table: "security_decision_events", row } as unknown as AnyRow);
  const text = String(
    wire[1 + LEDGER_COLUMNS.security_decision_events.findIndex(({ name }) => name === "matched")],
  );
  const list = JSON.parse(text) as unknown[];
  expect(list.slice(0, 2)).toEqual(rules.slice(0, 2));
  expect(list.at(-1)).toEqual({ more: 20_500 - (list.length - 1) });
  expect(Buffer.byteLength(text)).toBeLessThanOrEqual(textBytesMax);
  expect(Buffer.byteLength(text)).toBeGreaterThan(textBytesMax * 0.99);
});

test("what is no JSON, and is to be some, is kept as a text", () => {
  const row = { ...plain("exec_events"), env_names: '["A' };
  const wire = encodeRow({ table: "exec_events", row } as unknown as AnyRow);
  expect(wire).toContain('"[\\"A"');
});

test("an act whose intent no ledger would take is refused, and no row of it is stored", async () => {
  const { client, fake, log } = await rigOf();
  const decision = {
    ...plain("security_decision_events"),
    event_id: "e",
    type: "process.exec",
    action: "maybe",
  };
  const body = plain("event_body_blobs");
  const rows = [
    { table: "event_body_blobs", row: body },
    { table: "security_decision_events", row: decision },
  ] as unknown as AnyRow[];
  expect(() => client.appendAll(VM, rows)).toThrow(/action is none of allow, ask, block/);
  client.appendAll(VM, rows.slice(0, 1));
  await client.flush(VM);
  expect(fake.rows(VM)).toHaveLength(1);
  expect(log.filter(({ message }) => message === "rows were lost")).toEqual([]);
});
