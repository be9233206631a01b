import { timelinePage } from "@capsem/api";
import { expect, test } from "vitest";
import { readDecisions } from "./decisions.ts";
import { readDetail } from "./detail.ts";
import { readHistory } from "./history.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { runSlices } from "./slices.ts";
import { readStats } from "./stats.ts";
import { LedgerRig } from "./testing/ledger-rig.ts";
import { act, eventId, intent, row, type WireRow } from "./testing/rows.ts";
import { readTimeline } from "./timeline.ts";

function rigWith(rows: readonly WireRow[]): LedgerRig {
  const rig = new LedgerRig();
  rig.open();
  rig.append([...rows]);
  return rig;
}

const entriesOf = (rig: LedgerRig, layers: readonly string[] = []) =>
  timelinePage.parse(readTimeline(rig.reader(), { limit: 100, layers, newest: false })).entries;

function askRow(state: string, more: object = {}): WireRow {
  const ask = {
    ask_id: "ask_1",
    rule_id: "profiles.rules.marks",
    deadline_ms: 9_000,
    requester: "user uid 1",
  };
  return row("security_ask_events", { event_id: eventId(1), time_ms: 6, state, ...ask, ...more });
}

test("an ask says what was asked for, who answered, how far that goes, and their words", () => {
  const rig = rigWith([
    ...intent({ n: 1, command: "touch one", action: "ask" }),
    askRow("pending"),
    askRow("approved", { scope: "vm", resolver: "user uid 1, client cli", note: "fine" }),
  ]);
  expect(entriesOf(rig, ["ask"])).toMatchObject([
    {
      title: "ask pending: touch one",
      outcome: null,
      details: { ask_id: "ask_1", act: "touch one", type: "process.exec", resolver: null, note: null },
    },
    {
      title: "ask approved: touch one",
      outcome: "done",
      details: {
        ask_id: "ask_1",
        act: "touch one",
        resolver: "user uid 1, client cli",
        note: "fine",
        scope: "vm",
      },
    },
  ]);
});

test("an ask whose act is in no row of this ledger is told without it", () => {
  expect(entriesOf(rigWith([askRow("denied")]))).toMatchObject([
    { title: "ask denied", details: { ask_id: "ask_1" } },
  ]);
});

test("a rule says what it was about, what it does, how grave it is, and whether it decided", () => {
  const rig = rigWith(
    act({ n: 1, command: "rm -rf /", action: "block", detection: "high", outcome: "blocked" }),
  );
  expect(entriesOf(rig, ["rule"])).toMatchObject([
    {
      title: "default.exec on process.exec",
      details: { act: "rm -rf /", action: "block", detection: "high", has_won: true, type: "process.exec" },
    },
  ]);
});

/** A change as the service records it. */
function change(key: string, before: string | null, after: string | null, more: object = {}): WireRow {
  const end = { decision: "allow", outcome: "done", rule_id: "r", reason: "why" } as const;
  return row("policy_mutations", {
    ...{ event_id: eventId(1), key, source: "user", before, after, ...end },
    ...more,
  });
}

test.each([
  ["limits.idle_secs", null, "5", "set"],
  ["limits.idle_secs", "5", null, "reset"],
  ["profiles.rules.one", null, '[profiles.rules.one]\naction = "ask"\n', "put"],
  ["profiles.rules.one", "[profiles.rules.one]\n", null, "delete"],
  ["corp.rules.one", "[corp.rules.one]\n", null, "delete"],
  ["credentials.token", null, "{}", "put"],
  ["credentials.token", "{}", null, "delete"],
  ["corp.reload", null, null, "reload"],
  ["ledger.archive", "vm_a", "archive-1", "archive"],
  ["ledger.retention", "{}", null, "remove"],
  ["ledger.retention_days", "9", "8", "set"],
] as const)("a change of %s from %j to %j is told as %s", (key, before, after, verb) => {
  expect(entriesOf(rigWith([change(key, before, after)]))).toMatchObject([
    { title: `${verb} ${key}`, details: { verb, source: "user", before, after } },
  ]);
});

test("a change that failed says why, and what it was to be; long values are cut", () => {
  const long = "x".repeat(10_000);
  const error = "disk_full: Cannot write the settings: the disk is full";
  const [entry] = entriesOf(
    rigWith([change("profiles.rules.one", long, "[profiles.rules.one]\n", { outcome: "failed", error })]),
  );
  expect(entry).toMatchObject({
    outcome: "failed",
    details: { verb: "put", error, after: "[profiles.rules.one]\n" },
  });
  expect(String(entry?.details.before)).toHaveLength(LEDGER_LIMITS.detailCharactersMax);
});

test("an act that has not ended is told by its event, whatever it is", () => {
  const open = (n: number, type: string, fields: Record<string, string>) =>
    intent({ n, body: JSON.stringify({ type, fields }) }).map((cells) =>
      cells.map((cell) => (cell === "process.exec" ? type : cell)),
    );
  const rig = rigWith([
    ...open(1, "file.event", { "file.delete.path": "/a", "file.create.path": "/b" }),
    ...open(2, "file.event", { "file.create.path": "/c" }),
    ...open(3, "vm.lifecycle", {}),
    ...open(4, "settings.change", { "settings.key": "limits.idle_secs" }),
  ]);
  expect(entriesOf(rig).map(({ title }) => title)).toEqual([
    "rename /a to /b",
    "create /c",
    "a change of the VM",
    "limits.idle_secs",
  ]);
});

/** As the proxy records it. */
const toolEnd = (n: number, more: object) =>
  row("tool_calls", {
    ...{ event_id: eventId(n), server_name: "files", tool_name: "read", label_in: "{}", duration_ms: 1 },
    ...{ decision: "allow", outcome: "done", rule_id: "r", reason: "why" },
    ...more,
  });

test("a tool that answered with an error is counted as one that failed, and its line says it", () => {
  const rig = rigWith([
    toolEnd(1, {}),
    toolEnd(2, { error: "tool_error" }),
    toolEnd(3, { outcome: "failed", error: "timeout: no answer" }),
    toolEnd(4, { error: "its result is withheld by r" }),
  ]);
  const [counted] = runSlices(readDetail(rig.reader())).tools_by_name;
  expect(counted).toMatchObject({ server: "files", tool: "read", count: 4, failed: 2, refused: 0 });
  expect(entriesOf(rig, ["tool"]).map(({ outcome, details }) => [outcome, details.error])).toEqual([
    ["done", undefined],
    ["done", "tool_error"],
    ["failed", "timeout: no answer"],
    ["done", "its result is withheld by r"],
  ]);
});

test("what was refused before it was judged counts as blocked, as its end does; each act once", () => {
  const net = (n: number, more: object) =>
    row("net_events", {
      ...{ event_id: eventId(n), kind: "http.request", host: "10.0.0.1", rule_id: "egress.private" },
      ...{ decision: "block", outcome: "blocked", reason: "a private address" },
      ...more,
    });
  const rig = rigWith([
    ...act({ n: 1 }),
    ...act({ n: 2, action: "block", outcome: "blocked" }),
    net(3, {}),
    net(4, { kind: "connect" }),
    // Nobody's request, and allowed: a lookup of a name.
    net(5, { decision: "allow", outcome: "done" }),
  ]);
  const { decisions, outcomes, types } = runSlices(readDetail(rig.reader()));
  expect(decisions).toEqual({ allow: 1, ask: 0, block: 3 });
  expect(readStats(rig.reader()).decisions).toEqual(decisions);
  expect(outcomes).toEqual({ done: 2, blocked: 3 });
  expect(types).toEqual([
    { type: "process.exec", allow: 1, ask: 0, block: 1 },
    { type: "connect", allow: 0, ask: 0, block: 1 },
    { type: "http.request", allow: 0, ask: 0, block: 1 },
  ]);
});

test("a call of a tool that has not ended is told with what it was given", () => {
  const fields = { "mcp.server.name": "files", "mcp.tool_call.name": "read" };
  const body = JSON.stringify({
    type: "mcp.tool_call",
    fields: { ...fields, "mcp.request.arguments": { path: "/a" } },
  });
  const rows = intent({ n: 1, body }).map((cells) =>
    cells.map((cell) => (cell === "process.exec" ? "mcp.tool_call" : cell)),
  );
  expect(entriesOf(rigWith(rows), ["tool"])).toMatchObject([
    { title: "files__read", outcome: null, details: { arguments: '{"path":"/a"}' } },
  ]);
});

test("who came by the gateway is told with the token, in every answer; the rows have them apart", () => {
  const withToken = (rows: WireRow[], token: string) =>
    rows.map((cells) => {
      const [table] = cells;
      if (table !== "security_decision_events" && table !== "exec_events") return cells;
      // Behind the table: event_id, time_ms, trace_id, turn_id, requester, client, token_id.
      return cells.map((cell, at) => (at === 5 ? "gateway" : at === 7 ? token : cell));
    });
  const rig = rigWith([
    ...withToken(act({ n: 1 }), "1a2b3c4d"),
    ...withToken(act({ n: 2, action: "block", outcome: "blocked" }), "99999999"),
    ...act({ n: 3 }),
  ]);
  const [one, other, user] = ["gateway (token 1a2b3c4d)", "gateway (token 99999999)", "user uid 1000"];
  const exec = entriesOf(rig, ["exec", "rule"]).map(({ layer, requester }) => `${layer} ${requester}`);
  expect(exec).toEqual([`exec ${one}`, `exec ${other}`, `rule ${other}`, `exec ${user}`]);
  const history = readHistory(rig.reader(), { limit: 10, offset: 0 }).entries;
  expect(history.map(({ requester }) => requester)).toEqual([user, other, one]);
  const { events } = readDecisions(rig.reader(), { limit: 10 });
  expect(events.map(({ requester }) => requester)).toEqual([user, other, one]);
  const { requesters } = runSlices(readDetail(rig.reader()));
  expect(requesters.map(({ requester }) => requester).sort()).toEqual([one, other, user]);
});
