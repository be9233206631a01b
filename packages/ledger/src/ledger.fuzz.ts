/** Seeded fuzzers of what a producer sends and a reader asks. Each throws with what it found. */
import { assert, Failure } from "@capsem/base";
import { rowHash } from "./chain.ts";
import { readDecisions } from "./decisions.ts";
import { exportLines } from "./export.ts";
import { readHistory } from "./history.ts";
import type { LedgerReader } from "./reader.ts";
import { parseRow, type Row } from "./row.ts";
import { COLUMNS, TABLES } from "./schema.ts";
import { act, eventId } from "./testing/rows.ts";
import { readTimeline } from "./timeline.ts";

/** mulberry32: a small generator whose whole state is its seed. */
export function randomOf(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}
type Random = ReturnType<typeof randomOf>;

const TEXTS = [
  "",
  "a",
  "\0",
  "é\u{1F600}",
  "'; DROP TABLE exec_events; --",
  "\uFEFFx",
  "\uD800",
  "%_?",
  '{"a":1}',
  "[]",
  "null",
  "allow",
  "done",
];
const NUMBERS = [
  0,
  1,
  -1,
  0.5,
  -0,
  2 ** 53 - 1,
  2 ** 53,
  1e300,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  8.64e15,
  -(2 ** 53 - 1),
];
const OTHERS: readonly unknown[] = [
  null,
  undefined,
  true,
  [],
  {},
  new Uint8Array([0, 1]),
  1n,
  Symbol.iterator,
];

const pick = <T>(random: Random, values: readonly T[]): T => values[random(values.length)] as T;

function anyValue(random: Random): unknown {
  const kind = random(10);
  if (kind < 5) return pick(random, TEXTS);
  return kind < 9 ? pick(random, NUMBERS) : pick(random, OTHERS);
}

/** Mostly of the right shape: what is wrong at once teaches nothing about the rest. */
export function anyRow(random: Random): unknown {
  if (random(12) === 0) return pick<unknown>(random, [null, [], "x", [1], ["exec_events"], { length: 3 }]);
  if (random(3) > 0) {
    const rows = act({
      n: random(50) + 1,
      command: pick(
        random,
        TEXTS.filter((text) => text !== "\uD800"),
      ),
    });
    const row: unknown[] = [...(rows[random(rows.length)] ?? [])];
    if (random(2) === 0) row[1 + random(row.length - 1)] = anyValue(random);
    return row;
  }
  const table = pick(random, TABLES);
  return [table, ...COLUMNS[table].map(() => anyValue(random))];
}

/** A row is refused as `bad_row`, or stored so that its hash can be made again from what is stored. */
export function checkedRow(value: unknown): Row | null {
  try {
    return parseRow(value);
  } catch (thrown) {
    assert(thrown instanceof Failure && thrown.kind === "bad_row", `a row ended as ${String(thrown)}`);
    return null;
  }
}

export function hashed(rows: readonly Row[], first: number): string[] {
  const origin = { producer: "service", generation: "g1" };
  return rows.map((row, at) => rowHash({ ...origin, seq: first + at }, row));
}

/** Whatever is asked is answered or refused as what it is. */
export function fuzzReads(reader: LedgerReader, random: Random): void {
  const words = () =>
    pick(random, [...TEXTS, eventId(random(50)), "n1", `n${random(300)}`, "n0", "process.exec"]);
  const number = () => pick(random, [...NUMBERS, random(200)]);
  const maybe = <T>(value: () => T): T | undefined => (random(2) === 0 ? value() : undefined);
  const asks: readonly (() => unknown)[] = [
    () =>
      readTimeline(reader, {
        ...{ limit: number(), cursor: maybe(words), since_ms: maybe(number), trace_id: maybe(words) },
        layers: random(3) === 0 ? [words()] : [],
        newest: random(2) === 0,
      }),
    () => readHistory(reader, { limit: number(), offset: random(300), search: maybe(words) }),
    () =>
      readDecisions(reader, {
        ...{ limit: number(), cursor: maybe(words), since_ms: maybe(number) },
        ...{ action: maybe(words), type: maybe(words), rule_id: maybe(words) },
      }),
  ];
  try {
    pick(random, asks)();
  } catch (thrown) {
    assert(thrown instanceof Failure && thrown.kind === "invalid_input", `a read ended as ${String(thrown)}`);
  }
}

/** Every row is in the export, once. */
export function checkExport(reader: LedgerReader, rows: number): void {
  const lines = [...exportLines(reader)].join("").trimEnd().split("\n");
  assert(lines.length === rows + 1, `an export has ${lines.length - 1} of ${rows} rows`);
}
