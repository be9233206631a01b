import { generateKeyPairSync, sign } from "node:crypto";
import { cpSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ChainFault, type LedgerHead, signedHeadText } from "@capsem/api";
import { DatabaseSync } from "@photostructure/sqlite";
import { afterAll, expect, test } from "vitest";
import { genesisHead, keyIdOf, nextHead, rowHash, sha256 } from "./chain.ts";
import { ledgerPaths } from "./paths.ts";
import { COLUMNS, TABLES } from "./schema.ts";
import { LEDGER, LedgerRig } from "./testing/ledger-rig.ts";
import { act, eventId, intent, row } from "./testing/rows.ts";

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
const der = publicKey.export({ type: "spki", format: "der" });
const PUBLIC = der.toString("base64");
const signatureOf = (head: LedgerHead) =>
  sign(null, Buffer.from(signedHeadText(LEDGER, head)), privateKey).toString("base64");

const template = mkdtempSync(join(tmpdir(), "ledger-template-"));
afterAll(() => rmSync(template, { recursive: true, force: true }));
const heads = { middle: { rows: 0, head: "" }, end: { rows: 0, head: "" } };

/** Ten acts: 40 rows, signed after 20. Act k has the rows 4k-3 body, 4k-2 decision, 4k-1 rule, 4k end. */
function written(): { rig: LedgerRig; middle: LedgerHead; end: LedgerHead } {
  const rig = new LedgerRig();
  if (heads.end.rows === 0) {
    rig.open();
    for (let n = 1; n <= 10; n++) {
      const { rows, head } = rig.append(act({ n }));
      heads.end = { rows, head };
      if (n !== 5) continue;
      heads.middle = heads.end;
      rig.writer.sign(LEDGER, heads.middle, signatureOf(heads.middle), keyIdOf(der));
    }
    rig.writer.end();
    cpSync(rig.root, template, { recursive: true });
  } else cpSync(template, rig.root, { recursive: true });
  return { rig, ...heads };
}

test("a ledger that nobody touched is whole, with its signed rows", () => {
  const { rig, middle, end } = written();
  expect(rig.verify({ publicKey: PUBLIC, checkpoint: middle })).toEqual({
    ...{ vm_id: LEDGER, is_whole: true, rows: 40, signed_rows: 20, head: end.head, fault: null },
  });
});

type Fault = Partial<ChainFault>;
const CHAIN_SWAP = `
  CREATE TEMP TABLE t AS SELECT * FROM ledger_chain WHERE n IN (10, 14);
  DELETE FROM ledger_chain WHERE n IN (10, 14);
  INSERT INTO ledger_chain SELECT 24 - n, tbl, row_id, producer, generation, seq, row_hash, head FROM t`;

test.each<[string, string, Fault]>([
  [
    "a row of the tables that is gone",
    "DELETE FROM exec_events WHERE row_id = 12",
    { kind: "missing", row: 12, table: "exec_events", event_id: null },
  ],
  [
    "a row of the chain that is gone",
    "DELETE FROM ledger_chain WHERE n = 12",
    { kind: "missing", row: 12, table: null },
  ],
  [
    "a row that is gone from both",
    "DELETE FROM exec_events WHERE row_id = 12; DELETE FROM ledger_chain WHERE n = 12",
    { kind: "missing", row: 12 },
  ],
  [
    "a row that is gone from both, with those after it moved up",
    `DELETE FROM exec_events WHERE row_id = 12; DELETE FROM ledger_chain WHERE n = 12;
     ${TABLES.map((table) => `UPDATE ${table} SET row_id = row_id - 1 WHERE row_id > 12;`).join("\n")}
     UPDATE ledger_chain SET n = n - 1, row_id = row_id - 1 WHERE n > 12`,
    { kind: "missing", row: 12, table: "event_body_blobs" },
  ],
  [
    "two rows of a table that changed places",
    `UPDATE exec_events SET row_id = 1000 WHERE row_id = 8; UPDATE exec_events SET row_id = 8 WHERE row_id = 12;
     UPDATE exec_events SET row_id = 12 WHERE row_id = 1000`,
    { kind: "altered", row: 8, table: "exec_events", event_id: eventId(3) },
  ],
  ["two rows of the chain that changed places", CHAIN_SWAP, { kind: "reordered", row: 10 }],
  [
    "a number that its producer has given twice",
    "UPDATE ledger_chain SET seq = 11 WHERE n = 12",
    { kind: "altered", row: 12 },
  ],
  [
    "another producer's name",
    "UPDATE ledger_chain SET producer = 'other' WHERE n = 12",
    { kind: "altered", row: 12, table: "exec_events", event_id: eventId(3) },
  ],
  [
    "another head",
    `UPDATE ledger_chain SET head = '${"0".repeat(64)}' WHERE n = 12`,
    { kind: "reordered", row: 12, event_id: eventId(3) },
  ],
  [
    "another hash",
    `UPDATE ledger_chain SET row_hash = '${"0".repeat(64)}' WHERE n = 12`,
    { kind: "altered", row: 12 },
  ],
  [
    "a body that is gone",
    "DELETE FROM event_body_blobs WHERE row_id = 9",
    { kind: "missing", row: 9, table: "event_body_blobs" },
  ],
  [
    "a body that is another one",
    "UPDATE event_body_blobs SET body = '{}' WHERE row_id = 9",
    { kind: "altered", row: 9, table: "event_body_blobs" },
  ],
  [
    "an event beside its decision that is another one",
    "UPDATE security_decision_events SET event = '{}' WHERE row_id = 2",
    { kind: "altered", row: 2, table: "security_decision_events", event_id: eventId(1) },
  ],
  [
    "a row more, in the middle",
    "UPDATE exec_events SET row_id = 41 WHERE row_id = 40; INSERT INTO exec_events SELECT * FROM exec_events WHERE 0; UPDATE exec_events SET row_id = 39 WHERE row_id = 41",
    { kind: "altered", row: 40, table: "exec_events", event_id: eventId(10) },
  ],
  [
    "a row more, at the end",
    `INSERT INTO exec_events SELECT 41, ${COLUMNS.exec_events.map(({ name }) => `"${name}"`).join(", ")} FROM exec_events WHERE row_id = 40`,
    { kind: "altered", row: 41, table: "exec_events", event_id: eventId(10) },
  ],
  [
    "a row more, before the beginning",
    `INSERT INTO exec_events SELECT -1, ${COLUMNS.exec_events.map(({ name }) => `"${name}"`).join(", ")} FROM exec_events WHERE row_id = 40`,
    { kind: "altered", table: "exec_events", event_id: eventId(10) },
  ],
  [
    "rows of a table that there is not",
    "UPDATE ledger_chain SET tbl = 'sqlite_schema' WHERE n = 12",
    { kind: "altered", row: 12 },
  ],
  [
    "an end that was cut off",
    `${TABLES.map((table) => `DELETE FROM ${table} WHERE row_id > 36;`).join("\n")} DELETE FROM ledger_chain WHERE n > 36`,
    { kind: "cut", row: 37 },
  ],
  [
    "all of it gone",
    `${[...TABLES, "ledger_chain"].map((name) => `DELETE FROM ${name};`).join("\n")}`,
    { kind: "cut", row: 1 },
  ],
  [
    "a signature that is another one",
    `UPDATE ledger_heads SET signature = '${Buffer.alloc(64).toString("base64")}'`,
    { kind: "unsigned", row: 20 },
  ],
  [
    "a signature under a later head",
    "UPDATE ledger_heads SET n = 24, head = (SELECT head FROM ledger_chain WHERE n = 24)",
    { kind: "unsigned", row: 24 },
  ],
  ["a table that is gone", "DROP TABLE exec_events", { kind: "unreadable" }],
  ["the chain that is gone", "DROP TABLE ledger_chain", { kind: "unreadable", row: 1 }],
])("%s is found, by its row", (_, sql, fault) => {
  const { rig, end } = written();
  rig.tamper(sql);
  const found = rig.verify({ publicKey: PUBLIC, checkpoint: end });
  expect(found.is_whole).toBe(false);
  expect(found.fault).toMatchObject(fault);
});

/** Another value of the same type. */
const OTHER: Readonly<Record<string, string>> = {
  text: "'forged'",
  json: "'{}'",
  int: "77",
  real: "77.5",
  flag: "1 - coalesce(@, 0)",
  time: "77",
};

test.each(TABLES)("every column of %s that was changed is found", (table) => {
  const source = new LedgerRig();
  source.open();
  source.append([
    ...act({ n: 1, trace: "t" }),
    row("security_ask_events", { event_id: "ask", state: "pending" }),
    row("fs_events", { event_id: "fs", act: "import", path: "/a", decision: "allow", outcome: "done" }),
    row("lifecycle_events", { event_id: "life", action: "stop", decision: "allow", outcome: "done" }),
    row("policy_mutations", { event_id: "set", key: "k", decision: "allow", outcome: "done" }),
    row("tool_calls", { event_id: "tool", server_name: "s", decision: "allow", outcome: "done" }),
    row("net_events", { event_id: "net", host: "h", decision: "allow", outcome: "done" }),
  ]);
  source.writer.end();
  expect(source.verify().is_whole).toBe(true);
  for (const { name, kind } of COLUMNS[table]) {
    const rig = new LedgerRig();
    cpSync(source.root, rig.root, { recursive: true });
    rig.tamper(`UPDATE ${table} SET "${name}" = ${(OTHER[kind] ?? "").replace("@", `"${name}"`)}`);
    expect([name, rig.verify().fault]).toMatchObject([name, { kind: "altered", table }]);
  }
});

test("a row that was given and taken away again as null is found", () => {
  const { rig } = written();
  rig.tamper("UPDATE exec_events SET cwd = NULL WHERE row_id = 12");
  expect(rig.verify().fault).toMatchObject({ kind: "altered", row: 12, event_id: eventId(3) });
});

/** An attacker who knows how the chain is made, and has no key. */
function rewrite(rig: LedgerRig, from: number): void {
  rig.writer.end();
  const db = new DatabaseSync(ledgerPaths(rig.root, LEDGER).database);
  db.exec(`UPDATE exec_events SET command = 'harmless' WHERE row_id = ${from}`);
  const rows = db.prepare("SELECT * FROM ledger_chain ORDER BY n").all() as Record<string, string | number>[];
  let head = genesisHead(LEDGER);
  for (const chain of rows) {
    const origin = {
      producer: String(chain.producer),
      generation: String(chain.generation),
      seq: Number(chain.seq),
    };
    const values = Object.values(
      db.prepare(`SELECT * FROM ${chain.tbl} WHERE row_id = ?`).get(chain.row_id) as object,
    );
    const hash = rowHash(origin, [String(chain.tbl), ...values.slice(1)]);
    head = nextHead(head, hash);
    db.prepare("UPDATE ledger_chain SET row_hash = ?, head = ? WHERE n = ?").run(hash, head, chain.n);
  }
  db.close();
}

test("a chain that was made anew without the key contradicts the signed head, or the checkpoint", () => {
  const first = written();
  rewrite(first.rig, 12);
  expect(first.rig.verify({ publicKey: PUBLIC }).fault).toMatchObject({ kind: "unsigned", row: 20 });
  expect(first.rig.verify({ checkpoint: first.middle }).fault).toMatchObject({ kind: "unsigned", row: 20 });
  first.rig.tamper("DELETE FROM ledger_heads");
  expect(first.rig.verify({ publicKey: PUBLIC })).toMatchObject({ is_whole: true, signed_rows: 0 });
  expect(first.rig.verify({ publicKey: PUBLIC, checkpoint: first.middle }).fault).toMatchObject({
    ...{ kind: "cut", row: 20, table: "exec_events", event_id: eventId(5) },
  });
  const second = written();
  rewrite(second.rig, 36);
  expect(second.rig.verify({ publicKey: PUBLIC })).toMatchObject({ is_whole: true, signed_rows: 20 });
  expect(second.rig.verify({ publicKey: PUBLIC, checkpoint: second.end }).fault).toMatchObject({
    kind: "cut",
    row: 40,
  });
});

test("a tail that was cut off is found by the signed head alone", () => {
  const { rig } = written();
  rig.tamper(
    `${TABLES.map((table) => `DELETE FROM ${table} WHERE row_id > 16;`).join("\n")} DELETE FROM ledger_chain WHERE n > 16`,
  );
  expect(rig.verify({ publicKey: PUBLIC }).fault).toMatchObject({ kind: "cut", row: 17 });
});

test("a key of someone else, and none at all, are told from a forged signature", () => {
  const { rig } = written();
  const other = generateKeyPairSync("ed25519").publicKey.export({ type: "spki", format: "der" });
  expect(rig.verify({ publicKey: other.toString("base64") }).fault).toMatchObject({
    kind: "unsigned",
    row: 20,
  });
  expect(() => rig.verify({ publicKey: "x" })).toThrow("the key is none that can be read");
  const rsa = generateKeyPairSync("rsa", { modulusLength: 1_024 }).publicKey.export({
    type: "spki",
    format: "der",
  });
  expect(() => rig.verify({ publicKey: rsa.toString("base64") })).toThrow("not of Ed25519");
});

test("what is kept beside the chain is no evidence", () => {
  const { rig } = written();
  rig.open();
  rig.append(intent({ n: 11 }), { first: 41 });
  rig.tamper("DELETE FROM open_acts; DELETE FROM ledger_producers");
  expect(rig.verify({ publicKey: PUBLIC }).is_whole).toBe(true);
});

test("damage that SQLite finds is unreadable, and a file that is no database too", () => {
  const { rig } = written();
  rig.writer.end();
  const { database } = ledgerPaths(rig.root, LEDGER);
  truncateSync(database, 8_192);
  expect(rig.verify().fault).toMatchObject({ kind: "unreadable" });
  writeFileSync(database, "no database, by far not".repeat(1_000));
  expect(rig.verify().fault).toMatchObject({ kind: "unreadable", row: 1 });
});

test("the file of another VM, under this one's name, is refused", () => {
  const { rig } = written();
  rig.tamper("UPDATE ledger_meta SET value = 'vm_bbbbbbbbbbbbbbbb' WHERE name = 'ledger'");
  expect(rig.verify().fault).toMatchObject({ kind: "unreadable" });
  const other = written();
  other.rig.tamper("UPDATE ledger_chain SET head = row_hash WHERE n = 1");
  expect(other.rig.verify().fault).toMatchObject({ kind: "reordered", row: 1 });
  expect(genesisHead(LEDGER)).not.toBe(genesisHead("vm_bbbbbbbbbbbbbbbb"));
});

test("a body that came twice is stored once, numbered twice, and verified", () => {
  const rig = new LedgerRig();
  rig.open();
  const body = row("event_body_blobs", { hash: sha256("x"), kind: "event", original_bytes: 1, body: "x" });
  rig.append([body, body]);
  expect(rig.verify()).toMatchObject({ is_whole: true, rows: 2 });
  expect(rig.reader().number("SELECT count(*) FROM event_body_blobs")).toBe(1);
  // The same text as something else is something else.
  rig.append([row("event_body_blobs", { hash: sha256("x"), kind: "stdout", original_bytes: 1, body: "x" })]);
  expect(rig.reader().number("SELECT count(*) FROM event_body_blobs")).toBe(2);
  expect(rig.verify()).toMatchObject({ is_whole: true, rows: 3 });
  rig.tamper("DELETE FROM event_body_blobs WHERE row_id = 1");
  expect(rig.verify().fault).toMatchObject({ kind: "missing", row: 1 });
});
