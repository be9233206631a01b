import { expect, test } from "vitest";
import type { Rig } from "./testing/rig.ts";
import { createVm, errorOf, infoOf, useRigs } from "./testing/use-rigs.ts";

const rigWith = useRigs();

function freeze(rig: Rig, id: string): number {
  const pid = rig.service.registry.get(id).run?.pid ?? 0;
  process.kill(pid, "SIGSTOP");
  return pid;
}

async function quick<T>(work: Promise<T>): Promise<T> {
  const startedMs = performance.now();
  const value = await work;
  expect(performance.now() - startedMs).toBeLessThan(4_000);
  return value;
}

test("a frozen owner delays nobody, is marked, refuses work at once, and can be deleted", async () => {
  const rig = await rigWith();
  const { client } = rig;
  const [frozen, other] = [await createVm(rig, { name: "frozen" }), await createVm(rig)];
  freeze(rig, frozen);
  const waiting = client.post(`/vms/${frozen}/exec`, { argv: ["true"] });
  await quick(client.get("/vms/list"));
  await quick(client.post(`/vms/${other}/exec`, { argv: ["true"] }));
  await quick(createVm(rig));
  await expect
    .poll(async () => (await infoOf(rig, frozen)).health, { timeout: 30_000 })
    .toEqual({ owner: "unresponsive", guest: "ok" });
  expect(errorOf(await quick(client.post(`/vms/${frozen}/exec`, { argv: ["true"] })))).toMatchObject({
    kind: "unresponsive",
    status: 504,
  });
  await quick(client.delete(`/vms/${other}/delete`));
  const startedMs = performance.now();
  expect((await client.delete(`/vms/${frozen}/delete`)).json()).toEqual({ ok: true });
  expect(performance.now() - startedMs).toBeLessThan(5_000);
  expect(["vm_gone", "unresponsive"]).toContain(errorOf(await waiting).kind);
  expect((await client.get(`/vms/${frozen}/info`)).status).toBe(404);
});

test("an owner that thaws is healthy again", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const pid = freeze(rig, id);
  const owner = async () => ((await infoOf(rig, id)).health as { owner: string } | null)?.owner;
  await expect.poll(owner, { timeout: 30_000 }).toBe("unresponsive");
  process.kill(pid, "SIGCONT");
  await expect.poll(owner, { timeout: 30_000 }).toBe("ok");
  expect((await rig.client.post(`/vms/${id}/exec`, { argv: ["true"] })).json()).toMatchObject({
    exit_code: 0,
  });
});

test("a stop of a frozen owner is forced in time", async () => {
  const rig = await rigWith();
  const id = await createVm(rig, { name: "frozen" });
  freeze(rig, id);
  const startedMs = performance.now();
  expect((await rig.client.post(`/vms/${id}/stop`)).status).toBe(200);
  expect(performance.now() - startedMs).toBeLessThan(15_000);
  expect(await infoOf(rig, id)).toMatchObject({ state: "stopped", reason: "stop_forced" });
  expect(rig.processes()).toBe(0);
});
