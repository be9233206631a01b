import { timelinePage } from "@capsem/api";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { LEDGER_LIMITS } from "./limits.ts";
import { NOTABLE_RULE } from "./schema.ts";
import { LedgerRig } from "./testing/ledger-rig.ts";
import { act, ending, eventId, intent, row, type WireRow } from "./testing/rows.ts";
import { readTimeline, type TimelineQuery } from "./timeline.ts";

const ALL: TimelineQuery = { limit: 100, layers: [], newest: false };

function read(rig: LedgerRig, query: Partial<TimelineQuery> = {}) {
  return timelinePage.parse(readTimeline(rig.reader(), { ...ALL, ...query }));
}

/** The same act under another type, with its own end. */
function typed(
  n: number,
  type: string,
  fields: Record<string, string>,
  end: WireRow | null,
  action = "allow",
): WireRow[] {
  const rows = intent({ n, action: action as "allow", body: JSON.stringify({ type, fields }) });
  const named = rows.map((cells) => cells.map((cell) => (cell === "process.exec" ? type : cell)));
  return end === null ? named : [...named, end];
}

const ACT_END = { decision: "allow", outcome: "done", rule_id: "r", reason: "why" } as const;

/** One of everything. */
function story(): LedgerRig {
  const rig = new LedgerRig();
  rig.open();
  rig.append([
    ...act({ n: 1, command: "make", trace: "t1" }),
    ...typed(
      2,
      "file.import",
      { "file.import.path": "/a" },
      row("fs_events", {
        event_id: eventId(2),
        act: "import",
        path: "/a",
        bytes: 7,
        is_tree: false,
        ...ACT_END,
      }),
    ),
    ...typed(3, "file.export", { "file.export.path": "/b" }, null),
    ...typed(
      4,
      "vm.lifecycle",
      { "vm.lifecycle.action": "stop" },
      row("lifecycle_events", { event_id: eventId(4), action: "stop", vm_name: "dev", ...ACT_END }),
    ),
    ...typed(
      5,
      "settings.change",
      { "settings.key": "preset" },
      row("policy_mutations", { event_id: eventId(5), key: "preset", source: "user", ...ACT_END }),
    ),
    row("security_ask_events", {
      event_id: eventId(6),
      time_ms: 6,
      ask_id: "ask_1",
      state: "pending",
      trace_id: "t1",
    }),
    row("security_ask_events", {
      event_id: eventId(6),
      time_ms: 7,
      ask_id: "ask_1",
      state: "denied",
      resolver: "user",
      note: "no",
    }),
    ...intent({ n: 7, command: "rm -rf /", action: "block", detection: "high", trace: "t7" }),
    ending({ n: 7, command: "rm -rf /", action: "block", outcome: "blocked", trace: "t7" }),
    // What no decision of this ledger began.
    row("lifecycle_events", { event_id: eventId(8), action: "idle", requester: "service", ...ACT_END }),
  ]);
  return rig;
}

test("everything that was done is one story, each line once and in order", () => {
  const { entries, next } = read(story());
  expect(next).toBeNull();
  expect(entries.map(({ layer, title, decision, outcome }) => [layer, title, decision, outcome])).toEqual([
    ["exec", "make", "allow", "done"],
    ["file", "import /a", "allow", "done"],
    ["file", "export /b", "allow", null],
    ["lifecycle", "stop", "allow", "done"],
    ["settings", "reset preset", "allow", "done"],
    ["ask", "ask pending", "ask", null],
    ["ask", "ask denied", "ask", "denied"],
    ["exec", "rm -rf /", "block", "blocked"],
    ["rule", "default.exec on process.exec", "block", "blocked"],
    ["lifecycle", "idle", "allow", "done"],
  ]);
  expect(entries[0]).toMatchObject({
    ...{ event_id: eventId(1), trace_id: "t1", requester: "user uid 1000", rule_id: "default.exec" },
    details: { job_id: "job_1", exit_code: 0, stdout_bytes: 6 },
  });
});

test("a call of a tool and a request are told by what they reached, ended or not", () => {
  const rig = new LedgerRig();
  rig.open();
  const called = { "mcp.server.name": "files", "mcp.tool_call.name": "read" };
  const asked = { "http.method": "GET", "http.host": "example.com", "http.path": "/a" };
  rig.append([
    ...typed(
      1,
      "mcp.tool_call",
      called,
      row("tool_calls", {
        ...{ event_id: eventId(1), server_name: "files", tool_name: "read", process_name: "claude" },
        ...{ transport: "framed", bytes_sent: 3, label_out: '{"integrity":"untrusted"}', ...ACT_END },
      }),
    ),
    ...typed(2, "mcp.tool_call", called, null),
    ...typed(
      3,
      "http.request",
      asked,
      row("net_events", {
        ...{ event_id: eventId(3), kind: "http.request", scheme: "https", host: "example.com", port: 443 },
        ...{ method: "GET", path: "/a", status: 200, addresses: '["192.0.2.9"]', ...ACT_END },
      }),
    ),
    ...typed(4, "http.request", asked, null),
  ]);
  const { entries } = read(rig, { layers: ["tool", "net"] });
  expect(entries.map(({ layer, title, outcome }) => [layer, title, outcome])).toEqual([
    ["tool", "files__read", "done"],
    ["tool", "files__read", null],
    ["net", "GET https://example.com:443/a", "done"],
    ["net", "GET example.com/a", null],
  ]);
  expect(entries[0]?.details).toMatchObject({ process: "claude", transport: "framed", bytes_sent: 3 });
  expect(entries[2]?.details).toMatchObject({ status: 200, addresses: '["192.0.2.9"]' });
});

test.each<[string, Partial<TimelineQuery>, readonly string[]]>([
  ["one layer", { layers: ["file"] }, ["import /a", "export /b"]],
  ["two layers", { layers: ["settings", "lifecycle"] }, ["stop", "reset preset", "idle"]],
  ["a trace", { trace_id: "t7" }, ["rm -rf /", "default.exec on process.exec"]],
  ["a trace over layers", { trace_id: "t1" }, ["make", "ask pending"]],
  ["a trace that there is not", { trace_id: "t9" }, []],
  ["the newest first", { newest: true, limit: 3 }, ["idle", "default.exec on process.exec", "rm -rf /"]],
  [
    "a time",
    { since_ms: 1_750_000_000_004, layers: ["exec", "lifecycle", "settings"] },
    ["stop", "reset preset", "rm -rf /"],
  ],
  ["a time that is not yet", { since_ms: 1_850_000_000_000 }, []],
])("a page can be of %s", (_, query, titles) => {
  expect(read(story(), query).entries.map(({ title }) => title)).toEqual(titles);
});

test.each([true, false])(
  "pages put together are the story, also of one entry (newest first: %s)",
  (newest) => {
    const rig = story();
    const whole = read(rig, { newest }).entries;
    for (const limit of [1, 2, 3, 7]) {
      const found: unknown[] = [];
      let cursor: string | undefined;
      for (let pages = 0; pages < 20; pages++) {
        const page = read(rig, { newest, limit, cursor });
        expect(page.entries.length).toBeLessThanOrEqual(limit);
        found.push(...page.entries);
        if (page.next === null) break;
        cursor = page.next;
      }
      expect(found).toEqual(whole);
    }
  },
);

test("what is appended between two pages moves nothing", () => {
  const rig = story();
  const before = read(rig).entries;
  const first = read(rig, { limit: 4 });
  rig.append(act({ n: 20, command: "later" }));
  const rest = read(rig, { cursor: first.next ?? "" });
  expect([...first.entries, ...rest.entries].map(({ title }) => title)).toEqual([
    ...before.map(({ title }) => title),
    "later",
  ]);
  const newest = read(rig, { newest: true, limit: 2 });
  rig.append(act({ n: 21, command: "last" }));
  expect(read(rig, { newest: true, cursor: newest.next ?? "", limit: 1 }).entries[0]?.title).toBe(
    "default.exec on process.exec",
  );
});

test("a page ends at its size, and a text at its own", () => {
  const rig = new LedgerRig();
  rig.open();
  for (let n = 1; n <= 800; n++) rig.append(act({ n, command: "é".repeat(2_000), trace: "t".repeat(200) }));
  const page = read(rig, { limit: LEDGER_LIMITS.pageRowsMax });
  expect(Buffer.byteLength(JSON.stringify(page.entries))).toBeLessThanOrEqual(LEDGER_LIMITS.pageBytesMax);
  expect(page.entries.length).toBeLessThan(800);
  expect(page.next).not.toBeNull();
  expect(page.entries[0]?.title).toBe(`${"é".repeat(511)}…`);
}, 60_000);

test.each<[string, Partial<TimelineQuery>]>([
  ["a layer that there is not", { layers: ["exec", "dns"] }],
  ["no rows", { limit: 0 }],
  ["too many rows", { limit: LEDGER_LIMITS.pageRowsMax + 1 }],
  ["half a row", { limit: 1.5 }],
  ["a cursor of somebody else", { cursor: "12" }],
  ["a cursor with more behind it", { cursor: "n1; DROP TABLE exec_events" }],
  ["an empty cursor", { cursor: "" }],
])("%s is invalid input", (_, query) => {
  const rig = story();
  expect(() => read(rig, query)).toThrow(Failure);
  expect(read(rig).entries).toHaveLength(10);
});

test("notable rules are found by their index, and decisions of a type by theirs", () => {
  const reader = story().reader();
  const plan = (sql: string) =>
    reader
      .prepare(`EXPLAIN QUERY PLAN ${sql}`)
      .all()
      .map((step) => step[3])
      .join("; ");
  expect(
    plan(`SELECT * FROM security_rule_events r WHERE ${NOTABLE_RULE} AND r.row_id > 5 ORDER BY r.row_id`),
  ).toContain("rules_notable");
  const ofType = plan(
    "SELECT * FROM security_decision_events d WHERE d.type = 'process.exec' AND d.row_id > 5 ORDER BY d.row_id",
  );
  expect(ofType).toContain("decisions_by_type");
  expect(ofType).not.toContain("TEMP B-TREE");
});

test("a row whose words nobody wrote is loud, not left out", () => {
  const rig = story();
  rig.tamper("UPDATE exec_events SET outcome = 'fine' WHERE outcome = 'done'");
  expect(() => read(rig)).toThrow('a row has the outcome "fine"');
});
