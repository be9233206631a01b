import type { LedgerRow } from "@capsem/api";
import { expect, test } from "vitest";
import { homeLayout } from "../home/layout.ts";
import {
  append,
  body,
  decision,
  hashes,
  kindOf,
  kindOfLater,
  lifecycle,
  numbered,
  opens,
  useLedgers,
  VM,
} from "../testing/ledger-rig.ts";
import { LEDGER_LIMITS } from "./limits.ts";

const rigOf = useLedgers();

test("rows of one turn are one batch, in their order, and a flush waits for them", async () => {
  const { client, fake } = await rigOf();
  await client.ready(VM);
  append(client, 0, 500);
  expect(fake.batches).toEqual([]);
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(500));
  expect(fake.batches).toEqual([{ ledger: VM, first: 1, rows: 500 }]);
});

test("rows are taken before the ledger runs, and one ledger waits for no other", async () => {
  const { client, fake } = await rigOf();
  append(client, 0, 3);
  append(client, 0, 2, "host");
  await Promise.all([client.flush(VM), client.flush("host")]);
  expect([hashes(fake), hashes(fake, "host")]).toEqual([numbered(3), numbered(2)]);
});

test("a batch ends at its rows and at its bytes; one row beyond them goes alone", async () => {
  const { client, fake } = await rigOf();
  await client.ready(VM);
  append(client, 0, LEDGER_LIMITS.batchRowsMax + 10);
  await client.flush(VM);
  expect(fake.batches.every(({ rows }) => rows <= LEDGER_LIMITS.batchRowsMax)).toBe(true);
  fake.batches.length = 0;
  const half = "é".repeat(LEDGER_LIMITS.batchBytesMax / 4 + 100);
  for (let n = 0; n < 3; n++) client.appendAll(VM, [body(n, half)]);
  client.appendAll(VM, [body(3, "y".repeat(LEDGER_LIMITS.batchBytesMax * 2))]);
  await client.flush(VM);
  expect(fake.batches.map(({ rows }) => rows)).toEqual([1, 1, 1, 1]);
});

test.each(["at open", "after open", "before commit", "after commit", "at sign"] as const)(
  "a ledger that dies %s gets again what it did not acknowledge, and nothing is there twice",
  async (dieAt) => {
    const { client, fake, log } = await rigOf({ dieAt });
    append(client, 0, 100);
    await client.flush(VM);
    append(client, 100, 200);
    await client.flush(VM);
    await client.finish(VM);
    expect(hashes(fake)).toEqual(numbered(200));
    expect(fake.starts).toBe(2);
    expect(log.filter(({ message }) => message === "ledger ended")).toHaveLength(1);
    expect(new Set(opens(fake).map(({ generation }) => generation)).size).toBe(1);
  },
);

test("ten deaths under load lose nothing and repeat nothing", async () => {
  const { client, fake } = await rigOf();
  for (let round = 0; round < 10; round++) {
    append(client, round * 300, round * 300 + 150);
    fake.faults.dieAt = round % 2 === 0 ? "after commit" : "before commit";
    await client.ready(VM);
    append(client, round * 300 + 150, round * 300 + 300);
    await client.flush(VM);
  }
  expect(hashes(fake)).toEqual(numbered(3_000));
});

test("a panic is kept of a ledger that ends by itself, and its last words are in it", async () => {
  const { client, fake, home } = await rigOf();
  await client.ready(VM);
  fake.die();
  append(client, 0, 1);
  await client.flush(VM);
  const { listPanics } = await import("../trouble/panic-list.ts");
  const { panics } = await listPanics(homeLayout(home), { sinceMs: null, limit: 5 });
  expect(panics).toMatchObject([{ process: "ledger", message: "ended (signal SIGKILL)" }]);
});

test("while the ledger is away acts wait a moment, then are refused; what ends one is still taken", async () => {
  const rig = await rigOf();
  const { client, fake, advance } = rig;
  await client.ready(VM);
  fake.faults.isMute = true;
  fake.die();
  await expect.poll(() => client.status.state).toBe("away");
  expect(kindOf(() => client.appendAll(VM, [decision("e1")]))).toBe("taken");
  const started = performance.now();
  expect(await kindOfLater(client.ready(VM))).toBe("ledger_away");
  expect(performance.now() - started).toBeGreaterThanOrEqual(LEDGER_LIMITS.awayWaitMs - 50);
  advance(LEDGER_LIMITS.awayWaitMs);
  expect(kindOf(() => client.appendAll(VM, [decision("e2")]))).toBe("ledger_away");
  expect(kindOf(() => client.appendAll(VM, [lifecycle("e1", "stop")]))).toBe("taken");
  fake.faults.isMute = false;
  fake.die();
  await client.flush(VM);
  expect(fake.rows(VM).map(({ event_id }) => event_id)).toEqual(["e1", "e1"]);
});

test("whoever waits for the ledger can leave", async () => {
  const { client } = await rigOf({ isMute: true });
  const abort = new AbortController();
  const waits = kindOfLater(client.ready(VM, abort.signal));
  abort.abort();
  expect(await waits).toBe("cancelled");
  client.append(VM, "event_body_blobs", body(0).row as LedgerRow<"event_body_blobs">);
  const flush = new AbortController();
  const flushed = kindOfLater(client.flush(VM, flush.signal));
  flush.abort();
  expect(await flushed).toBe("cancelled");
});

test("a machine that cannot confine the ledger is told so, and nothing is done", async () => {
  const { client } = await rigOf({ exit: { code: 97, signal: null, message: null } });
  await expect.poll(() => client.status).toMatchObject({ state: "away" });
  expect(client.status.reason).toContain("allow_unconfined");
  await expect(client.ready(VM)).rejects.toThrow(/cannot confine/);
});

test("a disk that refuses is tried again, and the rows keep their order", async () => {
  const { client, fake } = await rigOf({
    openFailures: ["ledger_failed"],
    appendFailures: ["ledger_failed", "ledger_failed"],
  });
  append(client, 0, 10);
  await client.flush(VM);
  append(client, 10, 20);
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(20));
});

test("a closed client has everything committed, and its process is gone", async () => {
  const { client, fake } = await rigOf();
  append(client, 0, 1_000);
  await client.close();
  expect(hashes(fake)).toHaveLength(1_000);
  expect(fake.signed.get(VM)?.rows).toBe(1_000);
});

test("three hundred ledgers at once are more than the channel has room for, and each gets its turn", async () => {
  const { client, fake, log } = await rigOf();
  const letters = "abcdefghijklmnopqrst";
  const ids = Array.from({ length: 300 }, (_, n) =>
    `vm_${letters[n % 20]}${letters[Math.floor(n / 20)]}`.padEnd(19, "a"),
  );
  for (const id of ids) append(client, 0, 3, id);
  await Promise.all(ids.map((id) => client.flush(id)));
  for (const id of ids) expect(hashes(fake, id), id).toEqual(numbered(3));
  expect(log.filter(({ level }) => level === "error")).toEqual([]);
  await Promise.all(ids.map((id) => client.finish(id)));
  await expect.poll(() => fake.closed.length).toBe(300);
});

test("a ledger that hangs is ended, and its successor gets everything", async () => {
  const { client, fake, advance } = await rigOf();
  await client.ready(VM);
  fake.faults.appendGate = () => new Promise(() => undefined);
  append(client, 0, 10);
  await new Promise((resolve) => setImmediate(resolve));
  delete fake.faults.appendGate;
  // A head that is being signed just now is an answer too: time passes until there is none.
  const starts = () => {
    advance(LEDGER_LIMITS.silenceMsMax + 1);
    return fake.starts;
  };
  await expect.poll(starts, { interval: 500, timeout: 10_000 }).toBe(2);
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(10));
});
