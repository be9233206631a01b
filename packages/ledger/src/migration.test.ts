import { LEDGER_TABLES, LEDGER_VERSION, type LedgerTableRow } from "@capsem/api";
import { expect, test } from "vitest";
import { readDecisions } from "./decisions.ts";
import { readDetail } from "./detail.ts";
import { exportLines } from "./export.ts";
import { INDEXES } from "./schema.ts";
import { LedgerRig } from "./testing/ledger-rig.ts";
import { act, eventId, row } from "./testing/rows.ts";
import { readTimeline } from "./timeline.ts";

const TABLES_SINCE = Object.entries(LEDGER_TABLES).map(
  ([name, { since = 1, later = {} }]: [string, LedgerTableRow]) => ({ name, since, later }),
);
const newTables = (version: number) =>
  TABLES_SINCE.filter(({ since }) => since > version).map(({ name }) => name);
const newColumns = (version: number) =>
  TABLES_SINCE.filter(({ since }) => since <= version).flatMap(({ name: table, later }) =>
    Object.keys(later)
      .filter((column) => (later[column] ?? 0) > version)
      .map((column) => [table, column] as const),
  );

/** A ledger as an earlier version of the product left it, with two commands. */
function ofVersion(version: number): LedgerRig {
  const rig = new LedgerRig();
  rig.open();
  rig.append([...act({ n: 1, command: "make" }), ...act({ n: 2, command: "ls" })]);
  const tables = newTables(version);
  const indexes = INDEXES.filter(({ table }) => tables.includes(table)).map(
    ({ name }) => `DROP INDEX ${name};`,
  );
  const columns = newColumns(version).map(([table, column]) => `ALTER TABLE ${table} DROP COLUMN ${column};`);
  rig.tamper(
    `${indexes.join("")} ${tables.map((table) => `DROP TABLE ${table};`).join("")} ${columns.join("")}
     UPDATE ledger_meta SET value = '${version}' WHERE name = 'version'`,
  );
  return rig;
}

const firstVersion = () => ofVersion(1);

const titles = (rig: LedgerRig) =>
  readTimeline(rig.reader(), { limit: 10, layers: [], newest: false }).entries.map(({ title }) => title);

function detailOf(rig: LedgerRig) {
  const slices = readDetail(rig.reader());
  for (;;) {
    const { done, value } = slices.next();
    if (done === true) return value;
  }
}

test("there are tables and columns that earlier versions had not, or nothing is migrated", () => {
  expect(newTables(1)).toEqual(["tool_calls", "net_events"]);
  expect(newColumns(2)).toEqual([["security_decision_events", "event"]]);
});

const commands = (rig: LedgerRig) =>
  readDecisions(rig.reader(), { limit: 10 })
    .events.map(({ event }) => (event as { fields?: Record<string, unknown> }).fields?.["process.command"])
    .reverse();

test("events of the second version are read among its bodies, and those after it beside their decisions", () => {
  const rig = ofVersion(2);
  const before = rig.verify();
  expect(commands(rig)).toEqual(["make", "ls"]);
  expect([...exportLines(rig.reader())].join("")).not.toContain('"event"]');
  rig.restart();
  rig.open();
  rig.append(act({ n: 3, command: "pwd", isInRow: true }));
  rig.writer.end();
  expect(rig.verify()).toMatchObject({ is_whole: true, fault: null, rows: before.rows + 3 });
  expect(commands(rig)).toEqual(["make", "ls", "pwd"]);
  expect(titles(rig)).toEqual(["make", "ls", "pwd"]);
});

test("a ledger of the first version is read, verified and counted as it is", () => {
  const rig = firstVersion();
  expect(titles(rig)).toEqual(["make", "ls"]);
  expect(rig.verify()).toMatchObject({ is_whole: true, fault: null });
  expect(detailOf(rig)).toMatchObject({ commands: 2, tools: 0, tools_by_name: [] });
});

test("the next write gives it the new tables, and its chain goes on", () => {
  const rig = firstVersion();
  const before = rig.verify();
  rig.restart();
  rig.open();
  rig.append([
    row("tool_calls", {
      ...{ event_id: eventId(3), time_ms: 3, server_name: "files", tool_name: "read", label_in: "{}" },
      ...{ decision: "allow", outcome: "done", duration_ms: 4, bytes_sent: 5, bytes_received: 6 },
    }),
  ]);
  rig.writer.end();
  expect(rig.verify()).toMatchObject({ is_whole: true, fault: null, rows: before.rows + 1 });
  expect(titles(rig)).toEqual(["make", "ls", "files__read"]);
  expect(detailOf(rig).tools_by_name).toMatchObject([
    { server: "files", tool: "read", count: 1, failed: 0, bytes_sent: 5, bytes_received: 6 },
  ]);
  const version = rig.reader().prepare("SELECT value FROM ledger_meta WHERE name = 'version'").get();
  expect(version).toEqual([String(LEDGER_VERSION)]);
});

test.each([
  { says: 1, is: 2, words: /which is not ours/ },
  { says: 2, is: 3, words: /is not made as ours is/ },
])(
  "a ledger that says it is of version $says and is of version $is is not believed",
  ({ says, is, words }) => {
    const rig = ofVersion(is);
    rig.tamper(`UPDATE ledger_meta SET value = '${says}' WHERE name = 'version'`);
    rig.restart();
    expect(() => rig.open()).toThrow(words);
  },
);
