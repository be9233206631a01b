import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdtempSync, readFileSync, realpathSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sleep } from "@capsem/base";
import { builtPath } from "@capsem/native";
import { DatabaseSync } from "@photostructure/sqlite";
import { afterEach, expect, test, vi } from "vitest";
import { createHome, homeLayout } from "../home/layout.ts";
import { nodePowers } from "../powers-node.ts";
import { bundled } from "../testing/bundle.ts";
import { decision, lifecycle } from "../testing/ledger-rig.ts";
import { openKeys } from "./key-files.ts";
import type { LedgerClient } from "./ledger-client.ts";
import { startLedger } from "./start-ledger.ts";

const SOAK = process.env.CAPSEM_SOAK === "1";
const ROUNDS = SOAK ? 50 : 5;
vi.setConfig({ testTimeout: SOAK ? 900_000 : 180_000, hookTimeout: 60_000 });

const VM = "vm_aaaaaaaaaaaaaaaa";
const uid = process.getuid?.() ?? -1;
const program = builtPath("ledger.cjs");

interface Rig {
  readonly client: LedgerClient;
  readonly home: string;
  /** Of the ledgers that became ready, in order. */
  pids(): number[];
}

const lost: unknown[] = [];
const clients: LedgerClient[] = [];
const drivers: ChildProcess[] = [];
const homes: string[] = [];
afterEach(async () => {
  for (const driver of drivers.splice(0)) driver.kill("SIGKILL");
  for (const client of clients.splice(0)) await client.close();
  for (const home of homes.splice(0)) rmSync(home, { recursive: true, force: true });
  expect(lost.splice(0)).toEqual([]);
});

function newHome(): string {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "capsem-real-ledger-")));
  homes.push(home);
  return home;
}

async function start(home = newHome(), vmBytesMax = 1024 ** 3): Promise<Rig> {
  const layout = homeLayout(home);
  await createHome(layout, uid);
  const pids: number[] = [];
  const client = startLedger({
    layout,
    powers: nodePowers(program, program),
    key: openKeys(layout.keys, uid).head,
    vmBytesMax,
    allowUnconfined: () => false,
    log: (_level, message, fields = {}) => {
      if (message === "ledger ready") pids.push(Number(fields.pid));
      if (message === "rows were lost") lost.push(fields);
    },
  });
  clients.push(client);
  return { client, home, pids: () => pids };
}

function bodyRow(body: string) {
  const hash = createHash("sha256").update(body).digest("hex");
  return { hash, kind: "event", original_bytes: body.length, is_truncated: false, body };
}

function append(client: LedgerClient, from: number, to: number): void {
  for (let n = from; n < to; n++) client.append(VM, "event_body_blobs", bodyRow(`${n} `.padEnd(100, "x")));
}

async function exported(client: LedgerClient, ledger = VM): Promise<Record<string, unknown>[]> {
  const stream = await client.export(ledger);
  const chunks: Uint8Array[] = [];
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) chunks.push(chunk);
  stream.end();
  const lines = Buffer.concat(chunks).toString("utf8").trimEnd().split("\n");
  return lines.slice(1).map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** The numbers in the bodies, as they are stored. */
async function numbers(client: LedgerClient): Promise<number[]> {
  return (await exported(client)).map((line) => Number(/"(\d+) x+"/.exec(JSON.stringify(line))?.[1]));
}

async function verified(client: LedgerClient) {
  const checkpoint = await client.checkpointOf(VM);
  return client.read("read.verify", { ledger: VM, checkpoint, public_key: client.publicKey });
}

const numbered = (count: number) => Array.from({ length: count }, (_, n) => n);

test("the ledger is confined, takes rows, is signed, and is walked before its VM runs again", async () => {
  const first = await start();
  append(first.client, 0, 5_000);
  await first.client.finish(VM);
  expect(await verified(first.client)).toMatchObject({
    is_whole: true,
    rows: 5_000,
    signed_rows: 5_000,
    fault: null,
  });
  expect(await first.client.checkpointOf(VM)).toMatchObject({ rows: 5_000 });
  await first.client.close();
  expect(readFileSync(join(homeLayout(first.home).logs, "ledger.jsonl"), "utf8")).toContain(
    "ledger confined",
  );
  const second = await start(first.home);
  await second.client.checkWhole(VM);
  append(second.client, 5_000, 5_010);
  await second.client.flush(VM);
  expect(await numbers(second.client)).toEqual(numbered(5_010));
});

test(`${ROUNDS} kills of the ledger under load lose nothing, repeat nothing, and the chain is whole`, async () => {
  const { client, pids } = await start();
  await client.ready(VM);
  const backMs: number[] = [];
  let n = 0;
  for (let round = 0; round < ROUNDS; round++) {
    append(client, n, n + 3_000);
    // Somewhere in the middle of its batches, another place each time.
    await sleep(round * 3);
    const killedMs = performance.now();
    process.kill(pids().at(-1) ?? 0, "SIGKILL");
    append(client, n + 3_000, n + 4_000);
    n += 4_000;
    await client.flush(VM);
    backMs.push(Math.round(performance.now() - killedMs));
    if (pids().length < round + 2) await expect.poll(() => pids().length).toBe(round + 2);
  }
  expect(await numbers(client)).toEqual(numbered(n));
  expect(await verified(client)).toMatchObject({ is_whole: true, rows: n, fault: null });
  // A second on a quiet machine; this one runs other tests too.
  expect(backMs.sort((a, b) => a - b)[Math.floor(ROUNDS / 2)], `${backMs}`).toBeLessThan(3_000);
});

test(`${ROUNDS} kills of the service under load keep every flushed row, and the chain is whole`, async () => {
  const home = newHome();
  const driverPath = bundled("ledger-driver");
  let stored = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const driver = spawn(process.execPath, [driverPath, home, String(stored), program], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    drivers.push(driver);
    let said = "";
    let errors = "";
    driver.stdout?.on("data", (chunk: Buffer) => {
      said += chunk.toString();
    });
    driver.stderr?.on("data", (chunk: Buffer) => {
      errors += chunk.toString();
    });
    const ended = new Promise((resolve) => driver.on("close", resolve));
    await expect.poll(() => said.includes("\n"), { timeout: 30_000, message: errors }).toBe(true);
    await sleep(20 + round * 7);
    driver.kill("SIGKILL");
    await ended;
    const flushed = Number(said.slice(0, said.lastIndexOf("\n")).split("\n").at(-1));
    const { client } = await start(home);
    await client.checkWhole(VM);
    const found = await numbers(client);
    expect(found).toEqual(numbered(found.length));
    expect(found.length).toBeGreaterThanOrEqual(flushed);
    expect(await verified(client)).toMatchObject({ is_whole: true, fault: null });
    await client.close();
    clients.splice(0);
    stored = found.length;
  }
});

/** Rows that it took before it ends would not be the next one's. */
async function endInOrder(pid: number): Promise<void> {
  process.kill(pid, "SIGTERM");
  await expect.poll(() => existsSync(`/proc/${pid}`), { timeout: 10_000 }).toBe(false);
}

test("acts that the ledger gave up are believed: it ended in order, their ends are its own, and all goes on", async () => {
  const { client, pids } = await start();
  client.appendAll(VM, [decision("open"), decision("life", "vm.lifecycle")]);
  append(client, 0, 10);
  await client.flush(VM);
  await endInOrder(pids().at(-1) ?? 0);
  append(client, 10, 20);
  await client.flush(VM);
  // Where its producer comes back after all there are two ends, and the one that it says counts.
  client.appendAll(VM, [lifecycle("life", "stop"), decision("more")]);
  await client.flush(VM);
  await client.finish(VM);
  await endInOrder(pids().at(-1) ?? 0);
  append(client, 20, 21);
  await client.flush(VM);
  expect(pids().length).toBe(3);
  expect(client.broken).toEqual([]);
  await client.finish(VM);
  expect(await verified(client)).toMatchObject({ is_whole: true, rows: 28, signed_rows: 28, fault: null });
});

test("an older copy put in a ledger's place is found; set aside, its VM has a new one", async () => {
  const first = await start();
  append(first.client, 0, 100);
  await first.client.finish(VM);
  await first.client.close();
  const folder = join(homeLayout(first.home).ledgers, VM);
  cpSync(folder, `${folder}.old`, { recursive: true });
  const second = await start(first.home);
  append(second.client, 100, 200);
  await second.client.close();
  rmSync(folder, { recursive: true });
  renameSync(`${folder}.old`, folder);
  const third = await start(first.home);
  await expect(third.client.checkWhole(VM)).rejects.toMatchObject({ kind: "ledger_broken" });
  expect(await verified(third.client)).toMatchObject({ is_whole: false, fault: { kind: "cut" } });
  expect(() => append(third.client, 200, 201)).toThrow(/--archive/);
  await third.client.archive(VM);
  append(third.client, 0, 3);
  await third.client.flush(VM);
  expect(await numbers(third.client)).toEqual([0, 1, 2]);
  await third.client.remove(VM);
  const { ledgers } = await third.client.read("read.list", {});
  expect(ledgers.map(({ vm_id }) => vm_id)).toEqual(["host"]);
  expect(await third.client.checkpointOf(VM)).toBeNull();
});

test("a ledger whose folder was removed is cut, is in the list, and is set aside like another broken one", async () => {
  const first = await start();
  append(first.client, 0, 20);
  await first.client.close();
  rmSync(join(homeLayout(first.home).ledgers, VM), { recursive: true });
  const { client } = await start(first.home);
  expect(await client.list()).toContainEqual(expect.objectContaining({ vm_id: VM, rows: 0, archived: 0 }));
  expect(await client.verify(VM)).toMatchObject({ is_whole: false, fault: { kind: "cut", row: 1 } });
  await expect(client.checkWhole(VM)).rejects.toMatchObject({ kind: "ledger_broken" });
  expect(() => append(client, 0, 1)).toThrow(/--archive/);
  await client.archive(VM);
  await client.checkWhole(VM);
  append(client, 0, 3);
  await client.finish(VM);
  expect(await client.verify(VM)).toMatchObject({ is_whole: true, rows: 3, signed_rows: 3 });
});

test("one that was set aside can be verified against its own checkpoint, and exported", async () => {
  const { client, home } = await start();
  append(client, 0, 20);
  await client.finish(VM);
  client.foundBroken(VM, "somebody looked");
  const archived = `${VM}@${await client.archive(VM)}`;
  append(client, 100, 101);
  await client.finish(VM);
  expect(await client.verify(archived)).toMatchObject({ vm_id: archived, is_whole: true, signed_rows: 20 });
  expect((await exported(client, archived)).length).toBe(20);
  const db = new DatabaseSync(
    join(homeLayout(home).ledgers, archived.replace("@", "/archive/"), "session.db"),
  );
  db.exec("DELETE FROM ledger_chain WHERE n > 10; DELETE FROM event_body_blobs WHERE row_id > 10");
  db.close();
  expect(await client.verify(archived)).toMatchObject({ fault: { kind: "cut", row: 11 } });
  // What is found there says nothing of the ledger that is in use.
  client.foundBroken(archived, "it is cut");
  expect(client.broken).toEqual([]);
});

test("one that is open is set aside with all its rows, and goes on from its first", async () => {
  const { client } = await start();
  append(client, 0, 50);
  await client.flush(VM);
  await expect(client.archive(VM)).rejects.toMatchObject({ kind: "wrong_state" });
  client.foundBroken(VM, "somebody looked");
  const name = await client.archive(VM);
  append(client, 0, 5);
  await client.finish(VM);
  expect(await numbers(client)).toEqual([0, 1, 2, 3, 4]);
  expect(await verified(client)).toMatchObject({ is_whole: true, signed_rows: 5 });
  const { ledgers } = await client.read("read.list", {});
  expect(ledgers.find(({ vm_id }) => vm_id === VM)).toMatchObject({ rows: 5, archived: 1 });
  expect(name).not.toBe("");
});

test("a ledger reaches its quota, refuses work, and still takes the end of its VM", async () => {
  const { client } = await start(newHome(), 8 * 1024 ** 2);
  const isFull = async () => {
    try {
      for (let n = 0; n < 2_000; n++) {
        client.append(VM, "event_body_blobs", bodyRow(`${Math.random()} `.padEnd(4_000, "x")));
      }
      await client.flush(VM);
      return "taken";
    } catch (thrown) {
      return (thrown as { kind?: string }).kind;
    }
  };
  await expect.poll(isFull, { timeout: 60_000, interval: 10 }).toBe("ledger_full");
  const { bytes } = await client.read("read.stats", { ledger: VM });
  expect(bytes).toBeGreaterThanOrEqual(8 * 1024 ** 2 * 0.9);
  const who = { trace_id: null, turn_id: null, requester: "service", client: null, token_id: null };
  client.append(VM, "lifecycle_events", {
    ...{
      event_id: "abcdefabcdef",
      time_ms: Date.now(),
      ...who,
      action: "delete",
      vm_name: null,
      image: null,
    },
    ...{
      detail: null,
      decision: "allow",
      rule_id: "r",
      reason: "",
      outcome: "done",
      error: null,
      duration_ms: 1,
    },
  });
  await client.flush(VM);
  const { entries } = await client.read("read.timeline", {
    ...{ ledger: VM, limit: 10, layers: ["lifecycle"], newest: true },
  });
  expect(entries).toMatchObject([{ title: expect.stringContaining("delete") }]);
});
