import { LEDGER_TABLES, LEDGER_VERSION, type LedgerTableRow } from "@capsem/api";
import { expect, test } from "vitest";
import { readDetail } from "./detail.ts";
import { INDEXES } from "./schema.ts";
import { LedgerRig } from "./testing/ledger-rig.ts";
import { act, eventId, row } from "./testing/rows.ts";
import { readTimeline } from "./timeline.ts";

const NEW = Object.entries(LEDGER_TABLES)
  .filter(([, { since = 1 }]: [string, LedgerTableRow]) => since > 1)
  .map(([name]) => name);

/** A ledger as the first version of the product left it. */
function firstVersion(): LedgerRig {
  const rig = new LedgerRig();
  rig.open();
  rig.append([...act({ n: 1, command: "make" }), ...act({ n: 2, command: "ls" })]);
  const indexes = INDEXES.filter(({ table }) => NEW.includes(table)).map(({ name }) => `DROP INDEX ${name};`);
  rig.tamper(
    `${indexes.join("")} ${NEW.map((table) => `DROP TABLE ${table};`).join("")}
     UPDATE ledger_meta SET value = '1' WHERE name = 'version'`,
  );
  return rig;
}

const titles = (rig: LedgerRig) =>
  readTimeline(rig.reader(), { limit: 10, layers: [], newest: false }).entries.map(({ title }) => title);

function detailOf(rig: LedgerRig) {
  const slices = readDetail(rig.reader());
  for (;;) {
    const { done, value } = slices.next();
    if (done === true) return value;
  }
}

test("there are tables that the first version had not, or nothing is migrated", () => {
  expect(NEW).toEqual(["tool_calls", "net_events"]);
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

test("a ledger that says it is of the first version and has a table of the second is not believed", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.append(act({ n: 1 }));
  rig.tamper("UPDATE ledger_meta SET value = '1' WHERE name = 'version'");
  rig.restart();
  expect(() => rig.open()).toThrow(/which is not ours/);
});
