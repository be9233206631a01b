import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import type { Rig } from "./testing/rig.ts";
import { createVm, infoOf, useRigs } from "./testing/use-rigs.ts";

const rigWith = useRigs();
const POOL = { settings: { "limits.pool_size": 2 } };

async function untilWarm(rig: Rig, count: number): Promise<void> {
  await expect.poll(() => rig.service.pool.count("warm"), { timeout: 30_000 }).toBe(count);
}

test("slots are prepared at the start, claimed by creates of their shape, and refilled", async () => {
  const rig = await rigWith(POOL);
  await untilWarm(rig, 2);
  expect((await rig.client.get("/vms/list")).json()).toEqual({ vms: [] });
  expect((await rig.client.get("/status")).json()).toMatchObject({
    pool: { warm: 2, preparing: 0, target: 2 },
  });
  const id = await createVm(rig, { name: "claimed", env: { A: "1" } });
  expect(rig.service.pool.count("warm")).toBe(1);
  const exec = await rig.client.post(`/vms/${id}/exec`, { command: 'echo "$A $HOSTNAME"' });
  expect(exec.json()).toMatchObject({ stdout: { data: "1 claimed\n" } });
  await createVm(rig, { memory_gib: 1 });
  await untilWarm(rig, 2);
  await rig.client.post(`/vms/${id}/stop`);
  expect((await rig.client.post(`/vms/${id}/start`)).json()).toMatchObject({ id, state: "running" });
});

test("a slot that is frozen or dies at its claim does not fail the create", async () => {
  const rig = await rigWith({ ...POOL, script: { crash: "claim", only: ["pool"] } });
  await untilWarm(rig, 2);
  const id = await createVm(rig);
  expect(await infoOf(rig, id)).toMatchObject({ state: "running" });
  expect(rig.log.some(({ message }) => message === "pool slot failed at its claim")).toBe(true);
  await rig.client.delete(`/vms/${id}/delete`);
  await expect.poll(() => rig.counts().folders, { timeout: 30_000 }).toBe(2);
});

test("a slot that fails is counted, leaves nothing, and is tried again", async () => {
  const rig = await rigWith({ ...POOL, script: { crash: "ready", only: ["pool"] } });
  await expect.poll(() => rig.service.pool.discardedCount, { timeout: 30_000 }).toBe(1);
  expect(rig.service.pool.count("warm")).toBe(0);
  await expect.poll(() => rig.counts(), { timeout: 30_000 }).toMatchObject({ folders: 0, processes: 0 });
  rig.script({});
  await untilWarm(rig, 2);
});

test("a slot that dies while it waits is replaced", async () => {
  const rig = await rigWith({ settings: { "limits.pool_size": 1 } });
  await untilWarm(rig, 1);
  rig.killOwners();
  await expect.poll(() => rig.service.pool.discardedCount, { timeout: 30_000 }).toBe(1);
  await untilWarm(rig, 1);
});

test("an idle pool is drained, and the next create fills it again", async () => {
  const rig = await rigWith(POOL);
  await untilWarm(rig, 2);
  rig.advance(10 * 60_000);
  await rig.service.pool.sweep();
  expect(rig.counts()).toMatchObject({ folders: 0, processes: 0 });
  await createVm(rig);
  await untilWarm(rig, 2);
});

test("a machine with little memory has no pool", async () => {
  const memory = { bytes: 3 * 1024 ** 3 };
  const rig = await rigWith({ ...POOL, powers: { availableMemoryBytes: () => memory.bytes } });
  await rig.service.pool.sweep();
  expect(rig.service.pool.count("preparing")).toBe(0);
  memory.bytes = 8 * 1024 ** 3;
  await rig.service.pool.sweep();
  await untilWarm(rig, 2);
  memory.bytes = 3 * 1024 ** 3;
  await rig.service.pool.sweep();
  expect(rig.counts()).toMatchObject({ folders: 0, processes: 0 });
});

test("a slot that gives way while its disk is being made leaves nothing and harms nobody", async () => {
  const gate = defer<void>();
  const waiting = { count: 0 };
  const diskGate = async () => {
    waiting.count += 1;
    if (waiting.count === 1) await gate.promise;
  };
  const rig = await rigWith({ settings: { "limits.pool_size": 1 }, faults: { diskGate } });
  await expect.poll(() => waiting.count, { timeout: 30_000 }).toBe(1);
  const id = await createVm(rig);
  // Its folder stays as long as something may still be written into it.
  expect(rig.counts()).toMatchObject({ folders: 2 });
  gate.resolve();
  await untilWarm(rig, 1);
  expect(await infoOf(rig, id)).toMatchObject({ state: "running" });
  expect(rig.counts()).toMatchObject({ folders: 2 });
  expect(rig.service.pool.discardedCount).toBe(0);
});
