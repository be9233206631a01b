// Whoever has the file and no key hides rows without changing what they say: nothing of it may pass for whole.
import { generateKeyPairSync, sign } from "node:crypto";
import { closeSync, cpSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { type LedgerHead, signedHeadText } from "@capsem/api";
import { DatabaseSync } from "@photostructure/sqlite";
import { expect, test } from "vitest";
import { keyIdOf, sha256 } from "./chain.ts";
import { readDecisions } from "./decisions.ts";
import { ledgerPaths } from "./paths.ts";
import { COLUMNS, type Column, INDEXES, TABLES } from "./schema.ts";
import { LEDGER, LedgerRig } from "./testing/ledger-rig.ts";
import { act, row } from "./testing/rows.ts";
import { readTimeline } from "./timeline.ts";

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
const der = publicKey.export({ type: "spki", format: "der" });
const PUBLIC = der.toString("base64");

/** A row in every table, of texts that hold what SQLite has several ways for. */
function written(): { rig: LedgerRig; head: LedgerHead } {
  const rig = new LedgerRig();
  rig.open();
  const { rows, head } = rig.append([
    ...act({ n: 1, trace: "t", detection: "high", action: "block" }),
    row("security_ask_events", { event_id: "ask", state: "pending", trace_id: "t" }),
    row("fs_events", { event_id: "fs", act: "import", path: "/\ufffd", decision: "allow", outcome: "done" }),
    row("lifecycle_events", { event_id: "life", action: "stop", decision: "allow", outcome: "done" }),
    row("policy_mutations", { event_id: "set", key: "k\0\ufffd", decision: "allow", outcome: "done" }),
    row("tool_calls", { event_id: "tool", server_name: "s", decision: "allow", outcome: "done" }),
    row("net_events", { event_id: "net", host: "h", decision: "allow", outcome: "done" }),
    row("event_body_blobs", {
      hash: sha256("a\0\ufffdb"),
      kind: "event",
      original_bytes: 6,
      body: "a\0\ufffdb",
    }),
  ]);
  const signature = sign(null, Buffer.from(signedHeadText(LEDGER, { rows, head })), privateKey);
  rig.writer.sign(LEDGER, { rows, head }, signature.toString("base64"), keyIdOf(der));
  rig.writer.end();
  return { rig, head: { rows, head } };
}

function copyOf({ root }: LedgerRig): LedgerRig {
  const rig = new LedgerRig();
  cpSync(root, rig.root, { recursive: true });
  return rig;
}

function verified(rig: LedgerRig, checkpoint: LedgerHead | null = null) {
  return rig.verify({ publicKey: PUBLIC, checkpoint });
}

test("a decision whose words are stored as bytes reads the same and is on no page; verify names it", () => {
  const { rig, head } = written();
  expect(verified(rig, head)).toMatchObject({ is_whole: true, fault: null });
  const asked = { limit: 10, action: "block" };
  expect(readDecisions(rig.reader(), asked).events).toHaveLength(1);
  rig.tamper("UPDATE security_decision_events SET action = CAST(action AS BLOB)");
  expect(readDecisions(rig.reader(), asked).events).toEqual([]);
  expect(verified(rig, head).fault).toMatchObject({
    kind: "altered",
    table: "security_decision_events",
    row: 2,
  });
});

test("a job whose event id ends in U+0000 loses its end in the timeline; verify names it", () => {
  const { rig, head } = written();
  const lines = () =>
    readTimeline(rig.reader(), { limit: 10, layers: ["exec"], newest: false }).entries.map(
      ({ outcome }) => outcome,
    );
  expect(lines()).toEqual(["done"]);
  rig.tamper("UPDATE exec_events SET event_id = event_id || char(0)");
  expect(lines()).not.toEqual(["done"]);
  expect(verified(rig, head).fault).toMatchObject({ kind: "altered", table: "exec_events" });
});

/** Ways to store a value so that it reads the same. */
const WAYS: Readonly<Record<Column["kind"], readonly string[]>> = {
  text: ["CAST(@ AS BLOB)", "@ || char(0)", "CAST(CAST(@ AS BLOB) || x'00ff' AS TEXT)"],
  json: ["CAST(@ AS BLOB)", "@ || char(0)"],
  int: ["CAST(@ AS BLOB)"],
  flag: ["CAST(@ AS BLOB)"],
  time: ["CAST(@ AS BLOB)"],
  real: ["CAST(@ AS BLOB)"],
};

test.each(TABLES)("every column of %s that is stored in another way is found", (table) => {
  const { rig: source, head } = written();
  source.tamper(
    `UPDATE ${table} SET ${COLUMNS[table].map(({ name }) => `"${name}" = "${name}"`).join(", ")}`,
  );
  expect(verified(source, head).is_whole).toBe(true);
  let changes = 0;
  for (const { name, kind } of COLUMNS[table]) {
    for (const way of WAYS[kind]) {
      const rows = `"${name}" IS NOT NULL AND typeof("${name}") <> 'blob'`;
      const rig = copyOf(source);
      if (rig.reader().number(`SELECT count(*) FROM ${table} WHERE ${rows}`) === 0) continue;
      rig.tamper(`UPDATE ${table} SET "${name}" = ${way.replaceAll("@", `"${name}"`)} WHERE ${rows}`);
      changes += 1;
      expect([name, way, verified(rig, head).fault]).toMatchObject([name, way, { kind: "altered", table }]);
    }
  }
  expect(changes).toBeGreaterThan(3);
});

test("bytes that are no UTF-8, and read as U+FFFD, are told from U+FFFD", () => {
  const { rig, head } = written();
  for (const bytes of ["ff", "f09080"]) {
    const other = copyOf(rig);
    other.tamper(`UPDATE fs_events SET path = CAST(x'2f${bytes}' AS TEXT)`);
    expect(verified(other, head).fault).toMatchObject({ kind: "altered", table: "fs_events" });
  }
  rig.tamper("UPDATE policy_mutations SET key = CAST(x'6b00ff' AS BLOB)");
  expect(verified(rig, head).fault).toMatchObject({ kind: "altered", table: "policy_mutations" });
});

const altered = { kind: "altered" };
const unsigned = { kind: "unsigned" };
const unreadable = { kind: "unreadable" };

test.each<[string, string, object]>([
  [
    "a table's name in the chain as bytes",
    "UPDATE ledger_chain SET tbl = CAST(tbl AS BLOB) WHERE n = 2",
    altered,
  ],
  [
    "a producer with U+0000 behind it",
    "UPDATE ledger_chain SET producer = producer || char(0) WHERE n = 2",
    altered,
  ],
  [
    "a number of the chain as bytes",
    "UPDATE ledger_chain SET row_id = CAST(row_id AS BLOB) WHERE n = 2",
    altered,
  ],
  ["a head of the chain as bytes", "UPDATE ledger_chain SET head = CAST(head AS BLOB) WHERE n = 2", altered],
  [
    "a row of the chain before the first",
    "INSERT INTO ledger_chain SELECT 0, tbl, row_id, producer, generation, seq, row_hash, head FROM ledger_chain WHERE n = 2",
    altered,
  ],
  [
    "a row of the chain far before the first",
    "INSERT INTO ledger_chain SELECT -7, tbl, row_id, producer, generation, seq, row_hash, head FROM ledger_chain WHERE n = 2",
    altered,
  ],
  ["a signature as bytes", "UPDATE ledger_heads SET signature = CAST(signature AS BLOB)", unsigned],
  ["a signature with more behind it", "UPDATE ledger_heads SET signature = signature || 'AAAA'", unsigned],
  ["a signature with a line break", "UPDATE ledger_heads SET signature = signature || char(10)", unsigned],
  ["a signature with U+0000 behind it", "UPDATE ledger_heads SET signature = signature || char(0)", unsigned],
  ["another name of the key", "UPDATE ledger_heads SET key_id = '0000000000000000'", unsigned],
  ["a name of the key as bytes", "UPDATE ledger_heads SET key_id = CAST(key_id AS BLOB)", unsigned],
  [
    "a signed head before the first",
    "INSERT INTO ledger_heads SELECT -1, head, signature, key_id FROM ledger_heads",
    unsigned,
  ],
  ["no signed head where one was kept outside", "DELETE FROM ledger_heads", unsigned],
  [
    "its name as bytes",
    "UPDATE ledger_meta SET value = CAST(value AS BLOB) WHERE name = 'ledger'",
    unreadable,
  ],
  ["a table more", "CREATE TABLE more (n)", unreadable],
  ["a column more", "ALTER TABLE exec_events ADD COLUMN more", unreadable],
  ["a column less", "ALTER TABLE ledger_producers ADD COLUMN more", unreadable],
  ["a column of another name", "ALTER TABLE open_acts RENAME COLUMN n TO m", unreadable],
  ["a view", "CREATE VIEW more AS SELECT 1", unreadable],
  ["a trigger", "CREATE TRIGGER more AFTER INSERT ON exec_events BEGIN SELECT 1; END", unreadable],
  ["an index more", "CREATE INDEX more ON exec_events (command)", unreadable],
  ["an index that is gone", "DROP INDEX decisions_by_event", unreadable],
  [
    "an index of another kind",
    "DROP INDEX bodies_by_hash; CREATE INDEX bodies_by_hash ON event_body_blobs (hash) WHERE 0",
    unreadable,
  ],
])("%s is found", (_, sql, fault) => {
  const { rig, head } = written();
  rig.tamper(sql);
  const found = verified(rig, head);
  expect(found.is_whole).toBe(false);
  expect(found.fault).toMatchObject(fault);
  expect(found.fault?.message).not.toBe("");
});

/** The one page of a small index says that it has no entries. */
function emptied(rig: LedgerRig, name: string): void {
  const path = ledgerPaths(rig.root, LEDGER).database;
  const db = new DatabaseSync(path);
  const [root] = Object.values(
    db.prepare("SELECT rootpage FROM sqlite_schema WHERE name = ?").get(name) ?? {},
  );
  const [pageBytes] = Object.values(db.prepare("PRAGMA page_size").get() ?? {});
  db.close();
  const file = openSync(path, "r+");
  // Behind the kind of the page and its first free block.
  writeSync(file, Buffer.alloc(2), 0, 2, (Number(root) - 1) * Number(pageBytes) + 3);
  closeSync(file);
}

test("an index without its rows hides them from readers; verify names it", () => {
  const { rig, head } = written();
  const asked = { limit: 10, type: "process.exec" };
  expect(readDecisions(rig.reader(), asked).events).toHaveLength(1);
  emptied(rig, "decisions_by_type");
  expect(readDecisions(rig.reader(), asked).events).toEqual([]);
  expect(verified(rig, head).fault).toMatchObject({
    kind: "altered",
    table: "security_decision_events",
    row: 2,
  });
});

test.each(INDEXES)("the index $name without its rows is found", ({ name, table, where }) => {
  const { rig, head } = written();
  const rows = where === null ? "" : `WHERE ${where}`;
  const count = rig.reader().number(`SELECT count(*) FROM ${table} NOT INDEXED ${rows}`);
  emptied(rig, name);
  const { fault } = verified(rig, head);
  if (count === 0) expect(fault).toBe(null);
  else expect(fault).toMatchObject({ kind: "altered", table });
});

test("an entry of an index that is of no row is found", () => {
  const { rig, head } = written();
  // Entries of the ask's own index, in the place of those of another one that has fewer.
  const path = ledgerPaths(rig.root, LEDGER).database;
  const bytes = readFileSync(path);
  const db = new DatabaseSync(path);
  const pageOf = (name: string) =>
    Number(Object.values(db.prepare("SELECT rootpage FROM sqlite_schema WHERE name = ?").get(name) ?? {})[0]);
  const pageBytes = Number(Object.values(db.prepare("PRAGMA page_size").get() ?? {})[0]);
  const [from, to] = [pageOf("exec_events_by_event"), pageOf("lifecycle_events_by_trace")];
  db.close();
  bytes.copy(bytes, (to - 1) * pageBytes, (from - 1) * pageBytes, from * pageBytes);
  writeFileSync(path, bytes);
  expect(verified(rig, head).fault).toMatchObject({ kind: "altered", table: "lifecycle_events" });
});
