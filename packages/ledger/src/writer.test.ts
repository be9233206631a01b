import { existsSync, mkdirSync, rmdirSync } from "node:fs";
import { HOST_LEDGER } from "@capsem/api";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { genesisHead } from "./chain.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { ledgerPaths } from "./paths.ts";
import { LEDGER, LedgerRig } from "./testing/ledger-rig.ts";
import { act, ending, eventId, intent, row } from "./testing/rows.ts";
import { readTimeline } from "./timeline.ts";

/** The kind of what is thrown, and its words. */
function failureOf(work: () => unknown): string {
  try {
    work();
  } catch (thrown) {
    if (thrown instanceof Failure) return `${thrown.kind}: ${thrown.message}`;
    throw thrown;
  }
  return "nothing";
}

test("what is appended is there, chained and whole", () => {
  const rig = new LedgerRig();
  expect(rig.open()).toMatchObject({ rows: 0, head: genesisHead(LEDGER), interrupted: 0 });
  rig.append(act({ n: 1 }));
  const { rows, head } = rig.append([...act({ n: 2, stdoutPreview: "a\0b\u{1F600}" }), ...intent({ n: 3 })]);
  expect(rows).toBe(11);
  expect(rig.verify()).toMatchObject({ is_whole: true, rows: 11, head, fault: null });
  const preview = rig.reader().prepare("SELECT stdout_preview FROM exec_events WHERE row_id = 8").get();
  expect(preview).toEqual(["a\0b\u{1F600}"]);
});

test("rows that come again are skipped, a gap is refused, and either leaves the chain as it was", () => {
  const rig = new LedgerRig();
  rig.open();
  const rows = act({ n: 1 });
  const first = rig.append(rows);
  expect(rig.append(rows, { first: 1 })).toEqual(first);
  // Half of it is new.
  const second = rig.append([...rows, ...act({ n: 2 })], { first: 1 });
  expect(second.rows).toBe(8);
  expect(failureOf(() => rig.append(act({ n: 3 }), { first: 10 }))).toBe(
    `ledger_gap: Cannot append to ledger "${LEDGER}": row 10 comes after row 8, rows between are missing`,
  );
  expect(rig.append([], { first: 9 })).toEqual(second);
  expect(rig.verify()).toMatchObject({ is_whole: true, rows: 8 });
});

test("after a restart the same generation goes on where it was, and a row that comes again is skipped", () => {
  const rig = new LedgerRig();
  rig.open();
  const before = rig.append([...act({ n: 1 }), ...intent({ n: 2 })]);
  rig.restart();
  expect(failureOf(() => rig.append(act({ n: 3 }), { first: 8 }))).toContain(
    'generation "g1" of service is not open',
  );
  expect(rig.open()).toMatchObject({ rows: 7, head: before.head, interrupted: 0 });
  expect(rig.append(intent({ n: 2 }), { first: 5 }).rows).toBe(7);
  expect(rig.append([ending({ n: 2 })], { first: 8 }).rows).toBe(8);
  expect(rig.reader().number("SELECT count(*) FROM open_acts")).toBe(0);
  expect(rig.verify().is_whole).toBe(true);
});

test("two producers number their rows each for itself, and a generation begins at 1 again", () => {
  const rig = new LedgerRig();
  rig.open("g1", { producer: "service" });
  rig.open("p1", { producer: "proxy" });
  rig.append(act({ n: 1 }), { producer: "service" });
  rig.append(act({ n: 2 }), { producer: "proxy", generation: "p1" });
  rig.open("g2", { producer: "service" });
  expect(failureOf(() => rig.append(act({ n: 3 }), { generation: "g1", first: 5 }))).toContain("is not open");
  rig.append(act({ n: 3 }), { generation: "g2" });
  expect(rig.verify()).toMatchObject({ is_whole: true, rows: 12 });
});

test.each([
  ["another generation opens the ledger", (rig: LedgerRig) => rig.open("g2").interrupted],
  [
    "its producer is gone",
    (rig: LedgerRig) => {
      expect(rig.writer.endProducer("service")).toEqual([]);
      return 2;
    },
  ],
  [
    "its producer closes it",
    (rig: LedgerRig) => {
      rig.writer.close("service", LEDGER);
      return 2;
    },
  ],
  [
    "the writer ends",
    (rig: LedgerRig) => {
      expect(rig.writer.end()).toEqual([]);
      return 2;
    },
  ],
])("what is open is ended as interrupted when %s", (_, end) => {
  const rig = new LedgerRig();
  rig.open();
  rig.append([...act({ n: 1 }), ...intent({ n: 2, command: "make test", trace: "t2" }), ...intent({ n: 3 })]);
  rig.clock.now += 1_000;
  expect(end(rig)).toBe(2);
  const reader = rig.reader();
  expect(reader.number("SELECT count(*) FROM open_acts")).toBe(0);
  expect(
    reader
      .prepare(
        "SELECT producer, generation, seq, row_id FROM ledger_chain WHERE producer <> 'service' ORDER BY n",
      )
      .all(),
  ).toEqual([
    ["ledger", "ledger", 1, 11],
    ["ledger", "ledger", 2, 12],
  ]);
  const { entries } = readTimeline(reader, { limit: 10, layers: ["exec"], newest: false });
  expect(
    entries
      .slice(1)
      .map(({ title, outcome, trace_id, details }) => [title, outcome, trace_id, details.error]),
  ).toEqual([
    ["make test", "interrupted", "t2", "nobody lived to say how it ended"],
    ["echo 3", "interrupted", null, "nobody lived to say how it ended"],
  ]);
  expect(rig.verify()).toMatchObject({ is_whole: true, rows: 12 });
});

test("an act whose event stands beside its decision is ended by what it says", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.append(intent({ n: 1, command: "make test", isInRow: true }));
  expect(rig.open("g2").interrupted).toBe(1);
  const reader = rig.reader();
  expect(reader.prepare("SELECT command, outcome FROM exec_events").get()).toEqual([
    "make test",
    "interrupted",
  ]);
  expect(rig.verify().is_whole).toBe(true);
});

test("acts of every table are ended from what their decision says", () => {
  const rig = new LedgerRig();
  rig.open();
  const fields: Readonly<Record<string, Record<string, string>>> = {
    "file.export": { "file.export.path": "/etc/hosts" },
    "vm.lifecycle": { "vm.lifecycle.action": "stop", "vm.name": "dev", "vm.image": "debian" },
    "settings.change": { "settings.key": "preset", "settings.source": "user" },
    "process.exec_complete": { "process.exec.id": "j" },
  };
  for (const [index, [type, values]] of Object.entries(fields).entries()) {
    const [body, decision] = intent({ n: index + 1, body: JSON.stringify({ type, fields: values }) });
    rig.append([body ?? [], (decision ?? []).map((cell) => (cell === "process.exec" ? type : cell))]);
  }
  expect(rig.open("g2").interrupted).toBe(3);
  const reader = rig.reader();
  const one = (sql: string) => reader.prepare(sql).get();
  expect(one("SELECT act, path, outcome FROM fs_events")).toEqual(["export", "/etc/hosts", "interrupted"]);
  expect(one("SELECT action, vm_name, image FROM lifecycle_events")).toEqual(["stop", "dev", "debian"]);
  expect(one("SELECT key, source, digest_before FROM policy_mutations")).toEqual(["preset", "user", "p"]);
  expect(rig.verify().is_whole).toBe(true);
});

test("an act whose stored event is no event, or is gone, is ended all the same", () => {
  const rig = new LedgerRig();
  rig.open();
  const [, decision] = intent({ n: 1, body: "no json" });
  rig.append([decision ?? []]);
  const [body, second] = intent({ n: 2, body: "[1,2]" });
  rig.append([body ?? [], second ?? []]);
  expect(rig.open("g2").interrupted).toBe(2);
  expect(rig.reader().number("SELECT count(*) FROM exec_events WHERE outcome = 'interrupted'")).toBe(2);
});

test("a row that ends an act after the ledger had given it up stands beside it, and is what readers see", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.append(intent({ n: 1 }));
  rig.restart();
  rig.open("g2");
  rig.open("g1");
  rig.append([ending({ n: 1 })], { first: 4 });
  const { entries } = readTimeline(rig.reader(), { limit: 10, layers: [], newest: false });
  expect(entries.map(({ outcome }) => outcome)).toEqual(["done"]);
  expect(rig.verify()).toMatchObject({ is_whole: true, rows: 5 });
});

test.each([
  ["it has fewer rows", { rows: 5, head: "0".repeat(64) }],
  ["its head is another one", { rows: 4, head: "0".repeat(64) }],
])("a checkpoint that knows better refuses the opening: %s", (_, checkpoint) => {
  const rig = new LedgerRig();
  rig.open();
  rig.append(act({ n: 1 }));
  const open = () => rig.writer.open({ ledger: LEDGER, producer: "service", generation: "g2", checkpoint });
  expect(failureOf(open)).toContain("ledger_broken: ");
});

test("a checkpoint of a ledger that is gone refuses the opening, and makes no new one", () => {
  const rig = new LedgerRig();
  const open = (rows: number, head: string) =>
    rig.writer.open({ ledger: LEDGER, producer: "service", generation: "g", checkpoint: { rows, head } });
  expect(failureOf(() => open(3, "0".repeat(64)))).toContain("ledger_broken: ");
  expect(existsSync(ledgerPaths(rig.root, LEDGER).database)).toBe(false);
  expect(open(0, genesisHead(LEDGER)).rows).toBe(0);
});

test.each([
  [
    "a later version",
    "UPDATE ledger_meta SET value = '4' WHERE name = 'version'",
    "it has version 4, this program knows 3",
  ],
  ["no version", "DELETE FROM ledger_meta", "it has no version that can be read"],
  [
    "a trigger",
    "CREATE TRIGGER t AFTER INSERT ON exec_events BEGIN DELETE FROM exec_events; END",
    'it has the trigger "t", which is not ours',
  ],
  [
    "a last head that does not follow",
    "UPDATE ledger_chain SET head = row_hash WHERE n = 4",
    "does not follow",
  ],
  ["a last row but one that is gone", "DELETE FROM ledger_chain WHERE n = 3", "row 3 of its chain is gone"],
  [
    "an index that is gone",
    "DROP INDEX bodies_by_hash; DROP TABLE ledger_heads; DROP TABLE open_acts",
    "is gone from it",
  ],
])("a ledger with %s is not opened", (_, sql, words) => {
  const rig = new LedgerRig();
  rig.open();
  rig.append(act({ n: 1 }));
  rig.tamper(sql);
  rig.restart();
  const words2 = failureOf(() => rig.open());
  expect(words2).toContain("ledger_broken: ");
  expect(words2).toContain(words);
});

test("a name that is no id reaches no path", () => {
  const rig = new LedgerRig();
  for (const ledger of ["", "..", "vm_x", "../vm_aaaaaaaaaaaaaaaa", "vm_aaaaaaaaaaaaaaaa/..", "archive"]) {
    expect(failureOf(() => rig.open("g", { ledger }))).toContain("invalid_input: Cannot name ledger");
  }
  expect(rig.open("g", { ledger: HOST_LEDGER }).rows).toBe(0);
});

test("a file that cannot be opened is a loud failure, and the next attempt finds it mended", () => {
  const rig = new LedgerRig();
  const { database } = ledgerPaths(rig.root, LEDGER);
  mkdirSync(database, { recursive: true });
  expect(failureOf(() => rig.open())).toContain("ledger_failed: ");
  rmdirSync(database);
  expect(rig.open().rows).toBe(0);
});

test("more ledgers than may be open at once are all written, each with what it had", () => {
  const rig = new LedgerRig();
  const letters = "abcdefghijklmnopqrstuvwxyz234567";
  const ids = Array.from({ length: LEDGER_LIMITS.openMax + 3 }, (_, n) => {
    const tail = `${letters[n >> 5]}${letters[n & 31]}`;
    return `vm_${"a".repeat(14)}${tail}`;
  });
  for (const ledger of ids) rig.open("g1", { ledger });
  for (const round of [1, 2]) for (const ledger of ids) rig.append(act({ n: round }), { ledger });
  expect(rig.verify({}, ids[0])).toMatchObject({ is_whole: true, rows: 8 });
  expect(rig.verify({}, ids.at(-1))).toMatchObject({ is_whole: true, rows: 8 });
}, 60_000);

test("one append that is refused costs the others of its transaction nothing", () => {
  const rig = new LedgerRig();
  rig.open();
  rig.open("g1", { ledger: HOST_LEDGER });
  const request = (ledger: string, generation: string, first: number) => ({
    ...{ ledger, producer: "service", generation, first, rows: [], hashes: [] },
  });
  const ends = rig.writer.append([
    request(LEDGER, "g1", 1),
    request(LEDGER, "g1", 7),
    request(LEDGER, "old", 1),
    request(HOST_LEDGER, "g1", 1),
    request("vm_bbbbbbbbbbbbbbbb", "g1", 1),
  ]);
  expect(ends.map(({ kind }) => kind)).toEqual(["taken", "refused", "refused", "taken", "refused"]);
});

test("a ledger that a producer has open is not let go of; a closed one is", () => {
  const rig = new LedgerRig();
  rig.open();
  expect(failureOf(() => rig.writer.release(LEDGER))).toContain("a producer has it open");
  rig.writer.close("service", LEDGER);
  rig.writer.release(LEDGER);
  expect(failureOf(() => rig.writer.sign("vm_bbbbbbbbbbbbbbbb", { rows: 0, head: "" }, "s", "k"))).toContain(
    "ledger_not_found",
  );
});

test("a head that is not of the chain is not kept, and of many the newest are", () => {
  const rig = new LedgerRig();
  rig.open();
  const { rows, head } = rig.append(act({ n: 1 }));
  expect(failureOf(() => rig.writer.sign(LEDGER, { rows: 3, head }, "s", "k"))).toContain("invalid_input: ");
  rig.writer.sign(LEDGER, { rows, head }, "s", "k");
  for (let n = 2; n < LEDGER_LIMITS.headsMax + 4; n++) {
    const next = rig.append([row("security_ask_events", { event_id: eventId(n), state: "pending" })]);
    rig.writer.sign(LEDGER, { rows: next.rows, head: next.head }, "s", "k");
  }
  expect(rig.reader().number("SELECT count(*) FROM ledger_heads")).toBe(LEDGER_LIMITS.headsMax);
}, 60_000);
