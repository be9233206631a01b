import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { HOST_LEDGER, LEDGER_METHODS, type LedgerRole } from "@capsem/api";
import { messageOfRows } from "@capsem/api/ledger-row";
import { DatabaseSync } from "@photostructure/sqlite";
import { expect, test } from "vitest";
import { act, ending, eventId, intent } from "../../../packages/ledger/src/testing/rows.ts";
import {
  append,
  kindOf,
  LEDGER,
  newFolder,
  openLedger,
  readyLedger,
  signHead,
  verify,
} from "./testing/fixture.ts";
import { type LedgerProcess, startLedger } from "./testing/ledger-process.ts";

function titles(ledger: LedgerProcess, id = LEDGER) {
  return ledger
    .call("reader", "read.timeline", { ledger: id, limit: 100, layers: [], newest: false })
    .then(({ entries }) => entries.map(({ title, outcome }) => [title, outcome]));
}

test("a confined ledger takes rows, answers reads, and ends in order", async () => {
  const folder = newFolder();
  const ledger = await readyLedger({ folder });
  expect((await ledger.ready).map(({ unconfined }) => unconfined)).toEqual([[], [], []]);
  expect(await openLedger(ledger, { whole: true })).toMatchObject({ rows: 0, interrupted: 0 });
  const { rows, head } = await append(ledger, 1, [...act({ n: 1 }), ...intent({ n: 2 })]);
  expect(rows).toBe(7);
  await signHead(ledger, { rows, head });
  expect(await titles(ledger)).toEqual([
    ["echo 1", "done"],
    ["echo 2", null],
  ]);
  const read = { ledger: LEDGER, limit: 10 };
  expect(await ledger.call("reader", "read.history", { ...read, offset: 0 })).toMatchObject({ total: 2 });
  expect((await ledger.call("reader", "read.decisions", read)).events).toHaveLength(2);
  expect(await ledger.call("reader", "read.stats", { ledger: LEDGER })).toMatchObject({ rows: 7, open: 1 });
  expect(await ledger.call("reader", "read.detail", { ledger: LEDGER })).toMatchObject({ commands: 2 });
  expect((await ledger.call("reader", "read.list", {})).ledgers).toMatchObject([{ vm_id: LEDGER, rows: 7 }]);
  expect(await verify(ledger, { rows, head })).toMatchObject({ is_whole: true, signed_rows: 7 });
  expect(await ledger.end()).toEqual({ code: 0, signal: null });
  expect(ledger.log()).toContain('"ledger ended"');
  // Closed in order: nothing waits in a log, and what was open is ended.
  const log = statSync(join(folder, LEDGER, "session.db-wal"), { throwIfNoEntry: false });
  expect(log?.size ?? 0).toBe(0);
  const second = await readyLedger({ folder });
  expect(
    await openLedger(second, { generation: "g2", whole: true, checkpoint: { rows, head } }),
  ).toMatchObject({
    ...{ rows: 8, interrupted: 0 },
  });
  expect(await titles(second)).toEqual([
    ["echo 1", "done"],
    ["echo 2", "interrupted"],
  ]);
});

test("a method of another role does not exist on a channel, and neither does any other word", async () => {
  const ledger = await readyLedger({ folder: newFolder() });
  const roles = Object.keys(LEDGER_METHODS) as LedgerRole[];
  for (const [index, role] of roles.entries()) {
    const own = Object.keys(LEDGER_METHODS[role]);
    const words = [
      ...roles.flatMap((each) => Object.keys(LEDGER_METHODS[each])),
      "ledger.ready",
      "constructor",
      "",
    ];
    for (const method of words) {
      const plain = await kindOf(
        ledger.peers[index]?.call(method, {}, { timeoutMs: 5_000 }) ?? Promise.resolve(),
      );
      const streamed = await kindOf(
        (
          ledger.peers[index]?.open(method, {}, { timeoutMs: 5_000 }) ?? Promise.reject(new Error("no peer"))
        ).then(({ stream }) => stream.reset("cancelled")),
      );
      const isOwn = own.includes(method) && method !== "keep.export";
      const isStream = role === "maintainer" && method === "keep.export";
      expect([role, method, plain === "no_such_method", streamed === "no_such_method"]).toEqual([
        ...[role, method, !isOwn, !isStream],
      ]);
    }
  }
});

test.each<[string, LedgerRole, string, unknown]>([
  [
    "an id that is a path",
    "producer",
    "ledger.open",
    { ledger: "../x", generation: "g", checkpoint: null, whole: false },
  ],
  [
    "a generation of no letters",
    "producer",
    "ledger.open",
    { ledger: LEDGER, generation: "", checkpoint: null, whole: false },
  ],
  [
    "a generation that is a book",
    "producer",
    "ledger.open",
    { ledger: LEDGER, generation: "x".repeat(200), checkpoint: null, whole: false },
  ],
  ["a field more", "producer", "ledger.close", { ledger: LEDGER, force: true }],
  ["no parameters", "reader", "read.timeline", undefined],
  [
    "a layer that there is not",
    "reader",
    "read.timeline",
    { ledger: LEDGER, limit: 10, layers: ["dns"], newest: false },
  ],
  [
    "a limit beyond a page",
    "reader",
    "read.timeline",
    { ledger: LEDGER, limit: 100_000, layers: [], newest: false },
  ],
  ["a cursor that is none", "reader", "read.decisions", { ledger: LEDGER, limit: 1, cursor: "x" }],
  ["a key that is none", "reader", "read.verify", { ledger: LEDGER, checkpoint: null, public_key: "x" }],
  ["no room at all", "maintainer", "keep.limit", { vm_bytes_max: 0 }],
  ["numbers for rows", "producer", "ledger.append", { ledger: LEDGER, generation: "g1", first: 1, rows: 7 }],
  [
    "a first row before the first",
    "producer",
    "ledger.append",
    { ledger: LEDGER, generation: "g1", first: 0, ...messageOfRows([]) },
  ],
])("%s is invalid input", async (_, role, method, params) => {
  const ledger = await readyLedger({ folder: newFolder() });
  await openLedger(ledger);
  const roles = Object.keys(LEDGER_METHODS) as LedgerRole[];
  const peer = ledger.peers[roles.indexOf(role)];
  expect(await kindOf(peer?.call(method, params, { timeoutMs: 5_000 }) ?? Promise.resolve())).toBe(
    "invalid_input",
  );
  expect(await kindOf(append(ledger, 1, act({ n: 1 })))).toBe("done");
});

test("one bad row refuses its append, a gap too, and the rows of the next go on behind the last good ones", async () => {
  const ledger = await readyLedger({ folder: newFolder() });
  await openLedger(ledger);
  await append(ledger, 1, act({ n: 1 }));
  expect(await kindOf(append(ledger, 5, [...act({ n: 2 }), ["exec_events", 1]]))).toBe("bad_row");
  expect(await kindOf(append(ledger, 6, act({ n: 2 })))).toBe("ledger_gap");
  expect(await kindOf(append(ledger, 5, act({ n: 2 }), { generation: "g0" }))).toBe("ledger_gap");
  expect(await kindOf(append(ledger, 5, act({ n: 2 }), { id: HOST_LEDGER }))).toBe("ledger_gap");
  expect((await append(ledger, 5, act({ n: 2 }))).rows).toBe(8);
  expect(await verify(ledger)).toMatchObject({ is_whole: true, rows: 8 });
});

test("two producers have channels of their own; when one's ends, its acts are ended and the other goes on", async () => {
  const channels = [
    { role: "producer", producer: "service" },
    { role: "reader", producer: "service" },
    { role: "producer", producer: "proxy" },
  ] as const;
  const ledger = await readyLedger({ folder: newFolder(), channels });
  await openLedger(ledger);
  const proxy = ledger.peers[2];
  const open = { ledger: LEDGER, generation: "p1", checkpoint: null, whole: false };
  await proxy?.call("ledger.open", open, { timeoutMs: 5_000 });
  await append(ledger, 1, intent({ n: 1 }));
  await proxy?.call(
    "ledger.append",
    { ledger: LEDGER, generation: "p1", first: 1, ...messageOfRows(intent({ n: 2 })) },
    { timeoutMs: 5_000 },
  );
  proxy?.close();
  await expect
    .poll(() => titles(ledger))
    .toEqual([
      ["echo 1", null],
      ["echo 2", "interrupted"],
    ]);
  await append(ledger, 4, [ending({ n: 1 })]);
  expect((await titles(ledger))[0]).toEqual(["echo 1", "done"]);
  expect(await verify(ledger)).toMatchObject({ is_whole: true, rows: 8 });
});

test("a ledger whose reader has gone still takes rows, and ends when the last channel does", async () => {
  const ledger = await readyLedger({ folder: newFolder() });
  await openLedger(ledger);
  ledger.peers[1]?.close();
  ledger.peers[2]?.close();
  expect((await append(ledger, 1, act({ n: 1 }))).rows).toBe(4);
  ledger.peers[0]?.close();
  expect(await ledger.exited).toEqual({ code: 0, signal: null });
});

test("a full ledger says so, takes what ends and what must be, and is exported and set aside", async () => {
  const folder = newFolder();
  const ledger = await readyLedger({ folder, bytesMax: 2 * 1024 * 1024 });
  await openLedger(ledger);
  await append(ledger, 1, intent({ n: 1 }));
  let first = 4;
  const fill = async (n: number) => {
    const rows = act({ n, stdoutPreview: "x".repeat(100_000) });
    const kind = await kindOf(append(ledger, first, rows));
    if (kind === "done") first += rows.length;
    return kind;
  };
  let n = 100;
  while ((await fill(n)) === "done") n++;
  // Another thread writes the log back meanwhile: what is full once is full, before that and after it.
  for (let tries = 0; tries < 50; tries++) expect(await fill(n)).toBe("ledger_full");
  expect(await kindOf(append(ledger, first, [ending({ n: 1 })]))).toBe("done");
  expect(await verify(ledger)).toMatchObject({ is_whole: true, rows: first });
  const { stream } = await ledger.open("maintainer", "keep.export", { ledger: LEDGER });
  let text = "";
  for (let part = await stream.read(); part !== null; part = await stream.read())
    text += Buffer.from(part).toString();
  stream.end();
  expect(text.trimEnd().split("\n")).toHaveLength(first + 1);
  await ledger.call("maintainer", "keep.limit", { vm_bytes_max: 64 * 1024 * 1024 });
  expect(await kindOf(append(ledger, first + 1, act({ n: 2 })))).toBe("done");
  expect(await kindOf(ledger.call("maintainer", "keep.archive", { ledger: LEDGER }))).toBe("wrong_state");
  await ledger.call("producer", "ledger.close", { ledger: LEDGER });
  const { name } = await ledger.call("maintainer", "keep.archive", { ledger: LEDGER });
  expect(statSync(join(folder, LEDGER, "archive", name, "session.db")).size).toBeGreaterThan(2 * 1024 * 1024);
  expect(await kindOf(verify(ledger))).toBe("ledger_not_found");
  expect(await openLedger(ledger, { generation: "g2" })).toMatchObject({ rows: 0 });
  await ledger.call("producer", "ledger.close", { ledger: LEDGER });
  await ledger.call("maintainer", "keep.remove", { ledger: LEDGER });
  expect(existsSync(join(folder, LEDGER))).toBe(false);
});

test.each([
  [
    "altered",
    "UPDATE exec_events SET command = 'ls' WHERE row_id = 8",
    { kind: "altered", row: 8, event_id: eventId(2) },
  ],
  ["dropped", "DELETE FROM exec_events WHERE row_id = 8", { kind: "missing", row: 8, table: "exec_events" }],
  [
    "reordered",
    `UPDATE ledger_chain SET n = -1 WHERE n = 8; UPDATE ledger_chain SET n = 8 WHERE n = 12;
     UPDATE ledger_chain SET n = 12 WHERE n = -1`,
    { kind: "reordered", row: 8, table: "exec_events" },
  ],
])(
  "a row that was %s by somebody else is named, and its VM's ledger does not open",
  async (_, sql, fault) => {
    const folder = newFolder();
    const first = await readyLedger({ folder });
    await openLedger(first);
    for (const n of [1, 2, 3, 4]) await append(first, 4 * n - 3, act({ n }));
    await first.end();
    const db = new DatabaseSync(join(folder, LEDGER, "session.db"));
    db.exec(sql);
    db.close();
    const second = await readyLedger({ folder });
    expect((await verify(second)).fault).toMatchObject(fault);
    expect(await kindOf(openLedger(second, { generation: "g2", whole: true }))).toBe("ledger_broken");
    // Everything else runs, and setting it aside mends it.
    expect(await openLedger(second, { id: HOST_LEDGER, whole: true })).toMatchObject({ rows: 0 });
    await second.call("maintainer", "keep.archive", { ledger: LEDGER });
    expect(await openLedger(second, { generation: "g2", whole: true })).toMatchObject({ rows: 0 });
  },
);

test("one that was set aside is read, verified against what was kept, and exported by its name", async () => {
  const folder = newFolder();
  const first = await readyLedger({ folder });
  await openLedger(first);
  const { rows, head } = await append(first, 1, [...act({ n: 1 }), ...act({ n: 2 })]);
  await signHead(first, { rows, head });
  await first.call("producer", "ledger.close", { ledger: LEDGER });
  const { name } = await first.call("maintainer", "keep.archive", { ledger: LEDGER });
  await openLedger(first, { generation: "g2" });
  await append(first, 1, act({ n: 9 }), { generation: "g2" });
  const archived = `${LEDGER}@${name}`;
  expect(await verify(first, { rows, head }, archived)).toMatchObject({
    ...{ vm_id: archived, is_whole: true, rows: 8, signed_rows: 8 },
  });
  expect(await titles(first, archived)).toEqual([
    ["echo 1", "done"],
    ["echo 2", "done"],
  ]);
  expect(await first.call("reader", "read.stats", { ledger: archived })).toMatchObject({ vm_id: archived });
  const { stream } = await first.open("maintainer", "keep.export", { ledger: archived });
  let text = "";
  for (let part = await stream.read(); part !== null; part = await stream.read())
    text += Buffer.from(part).toString();
  stream.end();
  expect(JSON.parse(text.split("\n")[0] ?? "")).toMatchObject({ ledger: LEDGER, rows: 8 });
  await first.end();
  const db = new DatabaseSync(join(folder, LEDGER, "archive", name, "session.db"));
  db.exec("UPDATE exec_events SET command = 'ls' WHERE row_id = 4");
  db.close();
  const second = await readyLedger({ folder });
  expect((await verify(second, { rows, head }, archived)).fault).toMatchObject({ kind: "altered", row: 4 });
  expect(await kindOf(verify(second, null, `${LEDGER}@other`))).toBe("ledger_not_found");
  for (const bad of [`${LEDGER}@`, `${LEDGER}@..`, `${LEDGER}@a/b`, "@x", `x@${name}`]) {
    expect(await kindOf(verify(second, null, bad)), bad).toBe("invalid_input");
  }
  // Nothing is written to it.
  expect(await kindOf(openLedger(second, { id: archived }))).toBe("invalid_input");
});

test("a ledger whose files are gone is cut, where it is known outside that they were there", async () => {
  const ledger = await readyLedger({ folder: newFolder() });
  const checkpoint = { rows: 12, head: "0".repeat(64) };
  expect(await verify(ledger, checkpoint)).toMatchObject({
    ...{ is_whole: false, rows: 0, fault: { kind: "cut", row: 1 } },
  });
  expect(await kindOf(openLedger(ledger, { checkpoint, whole: true }))).toBe("ledger_broken");
  expect(await kindOf(verify(ledger, { rows: 0, head: "x" }))).toBe("ledger_not_found");
});

test("a ledger that is not there is found by no read", async () => {
  const ledger = await readyLedger({ folder: newFolder() });
  const id = "vm_bbbbbbbbbbbbbbbb";
  const calls = [
    () => ledger.call("reader", "read.timeline", { ledger: id, limit: 1, layers: [], newest: false }),
    () => ledger.call("reader", "read.stats", { ledger: id }),
    () => ledger.call("reader", "read.detail", { ledger: id }),
    () => ledger.open("maintainer", "keep.export", { ledger: id }),
    () => ledger.call("maintainer", "keep.archive", { ledger: id }),
    () => verify(ledger, null, id),
  ];
  for (const call of calls) expect(await kindOf(call())).toBe("ledger_not_found");
});

test("every thread of a ledger is sealed, and none has a right of root's", async () => {
  const ledger = await readyLedger({ folder: newFolder() });
  const threads = readdirSync(`/proc/${ledger.pid}/task`);
  expect(threads.length).toBeGreaterThan(8);
  for (const thread of threads) {
    const status = readFileSync(`/proc/${ledger.pid}/task/${thread}/status`, "utf8");
    expect([/^Seccomp:\s+(\d)/m.exec(status)?.[1], /^NoNewPrivs:\s+(\d)/m.exec(status)?.[1]]).toEqual([
      "2",
      "1",
    ]);
    expect(/^CapEff:\s+(\w+)/m.exec(status)?.[1]).toBe("0000000000000000");
  }
});

test("a ledger that was not started by the launcher refuses, unless it may go without", async () => {
  const refused = startLedger({ folder: newFolder(), unconfined: true, allowUnconfined: false });
  expect(await refused.exited).toMatchObject({ code: 1 });
  expect(refused.log()).toContain("Cannot confine the ledger: Landlock is not in force");
  const tried = await readyLedger({ folder: newFolder(), unconfined: true });
  expect((await tried.ready)[0]?.unconfined[0]).toContain("Landlock is not in force");
  expect(await openLedger(tried)).toMatchObject({ rows: 0 });
});

test.each([
  ["no JSON", "nonsense\n", "not JSON"],
  [
    "no channels",
    `${JSON.stringify({ folder: "/tmp", channels: [], vm_bytes_max: 1, allow_unconfined: true })}\n`,
    "no channels",
  ],
  ["nothing", "", "stdin ended early"],
])("a plan that is %s ends it with words", async (_, input, words) => {
  const refused = startLedger({ folder: newFolder(), unconfined: true, input });
  expect(await refused.exited).toMatchObject({ code: 1 });
  expect(refused.log()).toContain(words);
});
