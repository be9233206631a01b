import type { LedgerRow } from "@capsem/api";
import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import type { AnyRow } from "../boundary/parts.ts";
import {
  append,
  body,
  decision,
  hashes,
  kindOf,
  kindOfLater,
  lifecycle,
  numbered,
  useLedgers,
  VM,
} from "../testing/ledger-rig.ts";
import { LEDGER_LIMITS } from "./limits.ts";

const rigOf = useLedgers();

test("what waits is bounded: beginnings are refused first, ends have a share of their own", async () => {
  const { client } = await rigOf({ isMute: true });
  for (let n = 0; n < LEDGER_LIMITS.rowsWaitingMax; n++) client.appendAll(VM, [body(n)]);
  expect(kindOf(() => client.appendAll(VM, [body(0)]))).toBe("ledger_away");
  expect(kindOf(() => client.appendAll(VM, [decision("e")]))).toBe("ledger_away");
  for (let n = 0; n < LEDGER_LIMITS.endRowsMax; n++) client.appendAll(VM, [lifecycle(`e${n}`, "stop")]);
  expect(kindOf(() => client.appendAll(VM, [lifecycle("e", "stop")]))).toBe("ledger_away");
});

test("a ledger that starts and never comes to work is ended, and another one started", async () => {
  const { client, fake, advance, log } = await rigOf({ isMute: true });
  fake.faults.isMute = false;
  advance(LEDGER_LIMITS.linkTimeoutMs + 1);
  await expect.poll(() => client.status.state, { timeout: 15_000 }).toBe("ok");
  expect(fake.starts).toBe(2);
  expect(log.filter(({ message }) => message === "ledger hangs and is ended")).toHaveLength(1);
});

test("bytes are bounded like rows, and all ledgers together", async () => {
  const { client } = await rigOf({ isMute: true });
  const text = "x".repeat(LEDGER_LIMITS.charactersWaitingMax / 4 - 1_000);
  const taken = (ledger: string) => {
    let count = 0;
    while (kindOf(() => client.appendAll(ledger, [body(count, text)])) === "taken") count += 1;
    return count;
  };
  expect(taken(VM)).toBe(4);
  const all = [..."bcdefghijklm"].reduce((sum, letter) => sum + taken(`vm_${letter.repeat(16)}`), 4);
  expect(all * text.length).toBeLessThanOrEqual(LEDGER_LIMITS.charactersOfAllMax);
  expect(all).toBe(32);
});

test("rows that belong together are taken as a whole or not at all", async () => {
  const { client, fake } = await rigOf({ isMute: true });
  append(client, 0, LEDGER_LIMITS.rowsWaitingMax - 1);
  expect(kindOf(() => client.appendAll(VM, [body(0), body(1)]))).toBe("ledger_away");
  fake.faults.isMute = false;
  fake.die();
  await client.flush(VM);
  expect(hashes(fake)).toHaveLength(LEDGER_LIMITS.rowsWaitingMax - 1);
});

test("a full ledger takes what ends acts and the life of its VM, and nothing else", async () => {
  const { client, fake } = await rigOf({}, { vmBytesMax: 2_000 });
  client.appendAll(VM, [decision("running")]);
  append(client, 0, 100);
  await client.flush(VM);
  expect(kindOf(() => client.appendAll(VM, [decision("exec")]))).toBe("ledger_full");
  expect(kindOf(() => client.appendAll(VM, [body(1)]))).toBe("ledger_full");
  client.appendAll(VM, [
    { ...body(7), row: { ...body(7).row, hash: "h" } } as AnyRow,
    decision("d", "vm.lifecycle"),
  ]);
  client.appendAll(VM, [lifecycle("d", "delete")]);
  await client.flush(VM);
  expect(
    fake
      .rows(VM)
      .slice(-3)
      .map(({ table }) => table),
  ).toEqual(["event_body_blobs", "security_decision_events", "lifecycle_events"]);
  await client.setVmBytesMax(1_000_000);
  expect(kindOf(() => client.appendAll(VM, [decision("exec")]))).toBe("taken");
});

test("what was taken before a ledger was full goes into the service's own: nothing is lost", async () => {
  const gate = defer<void>();
  const { client, fake } = await rigOf({ appendGate: () => gate.promise }, { vmBytesMax: 2_000 });
  append(client, 0, 100);
  await client.ready(VM);
  await new Promise((resolve) => setImmediate(resolve));
  append(client, 100, 103);
  client.appendAll(VM, [decision("d", "vm.lifecycle")]);
  gate.resolve();
  await client.flush(VM);
  await client.flush("host");
  expect(hashes(fake)).toEqual(numbered(100));
  expect(hashes(fake, "host")).toEqual(["h100", "h101", "h102"]);
  expect(fake.rows(VM, "security_decision_events")).toHaveLength(1);
});

test("a broken ledger refuses work and says how to set it aside; the end of its VM is kept by the service", async () => {
  const { client, fake } = await rigOf({ broken: new Set([VM]) });
  append(client, 0, 5);
  await client.ready(VM);
  expect(kindOf(() => client.appendAll(VM, [decision("e")]))).toBe("ledger_broken");
  expect(() => client.appendAll(VM, [decision("e")])).toThrow(`capsem ledger verify ${VM}`);
  expect(await kindOfLater(client.checkWhole(VM))).toBe("ledger_broken");
  expect(kindOf(() => client.appendAll(VM, [decision("d", "vm.lifecycle")]))).toBe("ledger_broken");
  client.appendAll(VM, [lifecycle("d", "delete")]);
  await client.flush(VM);
  // What came before anybody could know is not lost either.
  expect(hashes(fake, "host")).toEqual(numbered(5));
  expect(fake.rows("host", "lifecycle_events")).toHaveLength(1);
  expect(client.broken).toMatchObject([{ ledger: VM }]);
});

test("a gap is a broken ledger: acknowledged rows are gone", async () => {
  const { client, fake } = await rigOf();
  append(client, 0, 5);
  await client.flush(VM);
  fake.faults.appendFailures = ["ledger_gap"];
  append(client, 5, 6);
  await client.flush(VM);
  expect(client.broken).toMatchObject([{ ledger: VM }]);
  expect(hashes(fake, "host")).toEqual(["h5"]);
});

test("a row that no table can hold is refused before anything is done, with those that belong to it", async () => {
  const { client, fake } = await rigOf();
  append(client, 0, 3);
  const wrong = { ...body(3).row, original_bytes: "three" } as unknown as LedgerRow<"event_body_blobs">;
  expect(() => client.append(VM, "event_body_blobs", wrong)).toThrow(/original_bytes is no safe integer/);
  const lacking = { ...body(7).row, hash: undefined } as unknown as LedgerRow<"event_body_blobs">;
  expect(() => client.appendAll(VM, [body(6), { table: "event_body_blobs", row: lacking }])).toThrow(
    /has no hash/,
  );
  append(client, 3, 5);
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(5));
});

test("a row that the ledger refuses all the same is found among its neighbours, said and left out", async () => {
  const { client, fake, log } = await rigOf({ appendFailures: ["bad_row", "bad_row"] });
  append(client, 0, 5);
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(5).slice(1));
  expect(log.filter(({ message }) => message === "rows were lost")).toHaveLength(1);
});

test("a row beyond every cap is a mistake of ours, at once", async () => {
  const { client } = await rigOf();
  const huge = body(0, "x".repeat(LEDGER_LIMITS.rowCharactersMax + 1));
  expect(() => client.appendAll(VM, [huge])).toThrow(/event_body_blobs\.body is over \d+ bytes/);
});

test("a full ledger is asked again whether it has found room", async () => {
  const { client, fake, advance } = await rigOf({}, { vmBytesMax: 2_000 });
  append(client, 0, 100);
  await client.flush(VM);
  fake.faults.bytesLess = 1_000_000;
  expect(kindOf(() => client.appendAll(VM, [body(1)]))).toBe("ledger_full");
  advance(LEDGER_LIMITS.probeIntervalMs);
  const taken = () => kindOf(() => client.appendAll(VM, [body(100)]));
  await expect.poll(taken).toBe("taken");
  await client.flush(VM);
  expect(hashes(fake)).toEqual(numbered(101));
});

test("where not even the reserve has room nothing is taken, also of the service's own ledger", async () => {
  const { client, fake } = await rigOf({}, { vmBytesMax: 2_000 });
  append(client, 0, 100, "host");
  await client.flush("host");
  fake.faults.appendFailures = ["ledger_full"];
  client.appendAll("host", [lifecycle("a", "stop")]);
  expect(await kindOfLater(client.flush("host"))).toBe("ledger_full");
  expect(kindOf(() => client.appendAll("host", [lifecycle("b", "stop")]))).toBe("ledger_full");
  await client.setVmBytesMax(1_000_000);
  await client.flush("host");
  expect(fake.rows("host", "lifecycle_events")).toHaveLength(1);
});
