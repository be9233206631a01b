import { timelinePage } from "@capsem/api";
import { expect, test } from "vitest";
import { readDecisions } from "./decisions.ts";
import { readDetail } from "./detail.ts";
import { readHistory } from "./history.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { runSlices } from "./slices.ts";
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
