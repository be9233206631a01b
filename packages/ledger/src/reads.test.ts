import { historyPage, securityPage, vmStats, vmStatsDetail } from "@capsem/api";
import { expect, test } from "vitest";
import { readDecisions } from "./decisions.ts";
import { readDetail } from "./detail.ts";
import { readHistory } from "./history.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { runSlices } from "./slices.ts";
import { readStats } from "./stats.ts";
import { LEDGER, LedgerRig } from "./testing/ledger-rig.ts";
import { act, ending, eventId, intent, row } from "./testing/rows.ts";
import { TimeHistogram } from "./time-histogram.ts";

test("history has every command that was asked for, the newest first, and those that run", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.append([
    ...act({ n: 1, command: "make all" }),
    ...intent({ n: 2, command: "make test" }),
    ...intent({ n: 3, command: "ls" }),
    ending({ n: 3, command: "ls" }),
    ...intent({ n: 4, command: "rm", action: "block" }),
    ending({ n: 4, command: "rm", action: "block", outcome: "blocked" }),
  ]);
  const read = (query: Partial<Parameters<typeof readHistory>[1]>) =>
    historyPage.parse(readHistory(rig.reader(), { limit: 10, offset: 0, ...query }));
  const commands = (query: Partial<Parameters<typeof readHistory>[1]>) => {
    const { entries, total } = read(query);
    return [entries.map(({ command }) => command), total];
  };
  expect(commands({})).toEqual([["rm", "ls", "make test", "make all"], 4]);
  expect(commands({ limit: 2 })).toEqual([["rm", "ls"], 4]);
  expect(commands({ limit: 2, offset: 3 })).toEqual([["make all"], 4]);
  expect(commands({ offset: 9 })).toEqual([[], 4]);
  expect(commands({ search: "make" })).toEqual([["make test", "make all"], 2]);
  expect(commands({ search: "make", limit: 1, offset: 1 })).toEqual([["make all"], 2]);
  expect(commands({ search: "%" })).toEqual([[], 0]);
  expect(read({}).entries[2]).toMatchObject({
    job_id: "job_2",
    user: "root",
    outcome: null,
    exit_code: null,
  });
  expect(read({}).entries[0]).toMatchObject({ decision: "block", outcome: "blocked", event_id: eventId(4) });
});

test("decisions come with their event and the rules that matched, by action, type, rule and time", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.append([...act({ n: 1 }), ...act({ n: 2, action: "block", detection: "high" }), ...act({ n: 3 })]);
  const read = (query: Partial<Parameters<typeof readDecisions>[1]> = {}) =>
    securityPage.parse(readDecisions(rig.reader(), { limit: 10, ...query }));
  const ids = (query: Partial<Parameters<typeof readDecisions>[1]>) =>
    read(query).events.map(({ event_id }) => event_id);
  expect(ids({})).toEqual([eventId(3), eventId(2), eventId(1)]);
  expect(ids({ action: "block" })).toEqual([eventId(2)]);
  expect(ids({ type: "process.exec", rule_id: "default.exec" })).toHaveLength(3);
  expect(ids({ rule_id: "nobody" })).toEqual([]);
  expect(ids({ since_ms: 1_750_000_000_002 })).toEqual([eventId(3), eventId(2)]);
  const first = read({ limit: 2 });
  expect(ids({ limit: 2, cursor: first.next ?? "" })).toEqual([eventId(1)]);
  expect(read({ action: "block" }).events[0]).toMatchObject({
    event: { type: "process.exec", event_id: eventId(2) },
    matched: [{ rule_id: "default.exec", action: "block", priority: 1001, detection: "high", fault: null }],
    is_redacted: false,
  });
});

test("an event that is a page by itself is named, and one that is no event too", () => {
  const rig = new LedgerRig();
  rig.open();
  const huge = JSON.stringify({
    type: "process.exec",
    fields: { x: "y".repeat(LEDGER_LIMITS.eventCharactersMax) },
  });
  rig.append([...intent({ n: 1, body: huge }), ...intent({ n: 2, body: "no json" })]);
  const { events } = securityPage.parse(readDecisions(rig.reader(), { limit: 10 }));
  expect(events.map(({ event }) => event.is_left_out)).toEqual([true, true]);
});

function busy(): LedgerRig {
  const rig = new LedgerRig();
  rig.open();
  for (let n = 1; n <= 100; n++) rig.append(act({ n, ...(n === 50 ? { outcome: "failed" } : {}) }));
  rig.append([
    ...act({ n: 200, action: "block", outcome: "blocked", detection: "high" }),
    ...intent({ n: 201, action: "ask" }),
    row("fs_events", {
      event_id: "a",
      act: "import",
      path: "/a",
      bytes: 10,
      decision: "allow",
      outcome: "done",
    }),
    row("fs_events", {
      event_id: "b",
      act: "export",
      path: "/a",
      bytes: 5,
      decision: "allow",
      outcome: "done",
    }),
    row("fs_events", {
      event_id: "c",
      act: "export",
      path: "/a",
      bytes: 500,
      decision: "allow",
      outcome: "failed",
    }),
    row("security_ask_events", { event_id: "d", state: "pending" }),
    row("security_ask_events", { event_id: "d", state: "approved" }),
  ]);
  return rig;
}

test("stats count what is there", () => {
  const reader = busy().reader();
  const stats = vmStats.parse(readStats(reader));
  expect(stats).toMatchObject({
    ...{ vm_id: LEDGER, rows: 412, commands: 102, files: 0, open: 1 },
    decisions: { allow: 100, ask: 1, block: 1 },
    first_time: "2025-06-15T15:06:40.001Z",
  });
  expect(stats.bytes).toBeGreaterThan(100_000);
  const empty = new LedgerRig();
  empty.open();
  expect(vmStats.parse(readStats(empty.reader()))).toMatchObject({
    rows: 0,
    first_time: null,
    last_time: null,
  });
});

test("the detail is the sum of its slices", () => {
  const detail = vmStatsDetail.parse(runSlices(readDetail(busy().reader())));
  expect(detail).toMatchObject({
    outcomes: { done: 101, failed: 2, blocked: 1 },
    types: [{ type: "process.exec", allow: 100, ask: 1, block: 1 }],
    rules: [{ rule_id: "default.exec", matched: 102, won: 102, detection: "none" }],
    exec: { count: 101, failed: 1, stdout_bytes: 606, max_ms: 100 },
    file: { imports: 1, exports: 1, bytes_in: 10, bytes_out: 5 },
    asks: { made: 1, approved: 1, denied: 0, expired: 0 },
    requesters: [{ requester: "user uid 1000", acts: 102 }],
  });
  expect(detail.exec.p50_ms).toBeGreaterThan(49);
  expect(detail.exec.p50_ms).toBeLessThan(53);
  expect(detail.exec.p99_ms).toBeGreaterThan(97);
  expect(detail.exec.p99_ms).toBeLessThanOrEqual(100);
});

test("a histogram's quantiles are within one in a hundred of the exact ones, from microseconds to years", () => {
  const histogram = new TimeHistogram();
  expect([histogram.quantileMs(0.5), histogram.maxMs]).toEqual([0, 0]);
  const values = Array.from({ length: 10_000 }, (_, n) => 1.001 ** n * 0.002);
  for (const value of values) histogram.add(value);
  for (const q of [0.01, 0.5, 0.9, 0.99, 1]) {
    const exact = values[Math.ceil(q * values.length) - 1] ?? 0;
    expect(Math.abs(histogram.quantileMs(q) / exact - 1)).toBeLessThan(0.0101);
  }
  const edges = new TimeHistogram();
  for (const ms of [0, 1e15]) edges.add(ms);
  expect(edges.quantileMs(0.5)).toBeLessThan(0.01);
  expect(edges.quantileMs(1)).toBeLessThanOrEqual(1e15);
});
