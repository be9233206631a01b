import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import type { Rig } from "./testing/rig.ts";
import { createVm, errorOf, useRigs } from "./testing/use-rigs.ts";

const rigWith = useRigs();
const built = ({ log }: Rig) => log.filter(({ message }) => message === "golden built").length;
const loaded = ({ log }: Rig) => log.filter(({ message }) => message === "golden loaded").length;

test("creates of one shape share one build, and the next service loads it", async () => {
  const first = await rigWith({ hasGolden: false });
  await Promise.all([createVm(first), createVm(first), createVm(first)]);
  expect(built(first)).toBe(1);
  expect(first.counts().folders).toBe(3);
  await first.service.close();
  const second = await rigWith({ home: first.layout.home });
  await createVm(second);
  await createVm(second);
  expect([built(second), loaded(second)]).toEqual([0, 1]);
});

test("another shape has a golden of its own", async () => {
  const rig = await rigWith();
  await createVm(rig);
  await createVm(rig, { memory_gib: 1 });
  expect([built(rig), loaded(rig)]).toEqual([1, 1]);
});

test("without a golden VMs boot cold, and the failed build leaves nothing", async () => {
  const rig = await rigWith({ hasGolden: false, script: { crash: "ready", only: ["golden"] } });
  await createVm(rig);
  await createVm(rig);
  expect(rig.log.filter(({ message }) => String(message).startsWith("no golden")).length).toBe(1);
  expect(rig.counts().folders).toBe(2);
  expect(existsSync(join(rig.layout.goldens, "draft-1-512"))).toBe(false);
});

test("a golden that cannot be kept on disk serves from memory", async () => {
  const rig = await rigWith({ hasGolden: false });
  rig.faults.commit = new Failure("disk_full", "Cannot write: the disk is full");
  await createVm(rig);
  await createVm(rig);
  expect(built(rig)).toBe(1);
  expect(rig.log.some(({ message }) => message === "golden not kept on disk")).toBe(true);
  expect(existsSync(join(rig.layout.goldens, "1-512"))).toBe(false);
});

test("a golden that does not load is built again, once", async () => {
  const rig = await rigWith({
    script: { gone: { at: "ready", reason: "checkpoint_corrupt" }, only: ["fork"] },
  });
  const refused = errorOf(await rig.client.post("/vms/create", {}));
  expect(refused).toMatchObject({ kind: "start_failed" });
  expect(refused.reason).toContain("checkpoint_corrupt");
  expect([built(rig), loaded(rig)]).toEqual([1, 1]);
  rig.script({});
  await createVm(rig);
});

test("a golden that a slot of the pool cannot load is built again for the next one", async () => {
  const rig = await rigWith({
    settings: { "limits.pool_size": 1 },
    script: { gone: { at: "ready", reason: "checkpoint_corrupt" }, only: ["fork", "pool"] },
  });
  const failed = () => rig.log.filter(({ message }) => message === "pool slot failed").length;
  await expect.poll(failed, { timeout: 30_000 }).toBe(1);
  rig.script({});
  await createVm(rig);
  expect(built(rig)).toBe(1);
});

test("a stored golden of a wrong size is reported and built again", async () => {
  const rig = await rigWith();
  writeFileSync(join(rig.layout.goldens, "1-512", "ram"), "short");
  await createVm(rig);
  expect(rig.log.some(({ message }) => message === "golden is corrupt: it is built again")).toBe(true);
  expect(built(rig)).toBe(1);
});

test("status tells of goldens that are being made and of those in memory, and a create that waits is not slow", async () => {
  const rig = await rigWith({ hasGolden: false, script: { readyDelayMs: 500, only: ["golden"] } });
  const goldens = async () => (await rig.client.get("/status")).json<{ goldens: object }>().goldens;
  const findings = async () => (await rig.client.get("/triage")).json<{ findings: object[] }>().findings;
  const creating = rig.client.post("/vms/create", {});
  await expect.poll(goldens).toEqual({ ready: 0, making: 1 });
  rig.advance(20_000);
  expect((await creating).status).toBe(200);
  expect(await goldens()).toEqual({ ready: 1, making: 0 });
  expect(await findings()).toEqual([]);
  rig.script({ readyDelayMs: 500 });
  const later = rig.client.post("/vms/create", {});
  await expect.poll(() => rig.service.registry.list().length).toBe(2);
  rig.advance(2_500);
  expect((await later).status).toBe(200);
  expect(await findings()).toMatchObject([{ kind: "slow", title: "create took longer than 2000 ms" }]);
});
