import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defer, Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { writeFileAtomic } from "../home/atomic-file.ts";
import { homeLayout, vmFolder } from "../home/layout.ts";
import type { Rig } from "../testing/rig.ts";
import { createVm, errorOf, infoOf, useRigs } from "../testing/use-rigs.ts";
import { Lifecycle, type LifecycleParts } from "./lifecycle.ts";
import type { VmRecord } from "./record.ts";
import { Registry } from "./registry.ts";
import { Vm } from "./vm.ts";

const rigWith = useRigs();
/** Processes start meanwhile, on machines that are busy. */
const SOON = { timeout: 30_000 };

const findingsOf = async ({ client }: Rig) =>
  (await client.get("/triage")).json<{ findings: { kind: string }[] }>().findings;

test("a stop that a deletion overtakes while logs are written ends with the deletion, and is no bug", async () => {
  const rig = await rigWith();
  const id = await createVm(rig, { name: "kept" });
  const vm = rig.service.registry.get(id);
  const { logs } = vm;
  if (logs === null) throw new Error("a running VM has logs");
  const [reached, gate] = [defer<void>(), defer<void>()];
  const release = logs.release.bind(logs);
  logs.release = async () => {
    reached.resolve();
    await gate.promise;
    await release();
  };
  const stopping = rig.client.post(`/vms/${id}/stop`);
  await reached.promise;
  // The owner is gone; what is left of the stop is the last of its log.
  const deleting = rig.client.delete(`/vms/${id}/delete`);
  await expect.poll(() => vm.record.state, SOON).toBe("deleting");
  gate.resolve();
  expect((await deleting).json()).toEqual({ ok: true });
  expect((await stopping).status).toBe(200);
  expect(rig.service.registry.has(id)).toBe(false);
});

test("a VM above its disk quota is ended also where the disk does not take its record", async () => {
  let isFull = false;
  const writeRecord = async (path: string, text: string) => {
    if (isFull) throw new Failure("disk_full", "Cannot write: the disk is full");
    await writeFileAtomic(path, text);
  };
  const rig = await rigWith({ options: { writeRecord } });
  const id = await createVm(rig);
  rig.faults.diskBytes = 11 * 1024 ** 3;
  isFull = true;
  await rig.service.sweep.pass();
  isFull = false;
  expect(await infoOf(rig, id)).toMatchObject({ state: "failed", reason: "disk_quota" });
  await expect.poll(() => rig.processes(), SOON).toBe(0);
});

test("a deletion of a VM that is ended for its quota waits for its processes", async () => {
  const gate = defer<void>();
  let isGated = false;
  const writeRecord = async (path: string, text: string) => {
    if (isGated && text.includes('"state":"failed"')) await gate.promise;
    await writeFileAtomic(path, text);
  };
  const rig = await rigWith({ options: { writeRecord } });
  const id = await createVm(rig);
  const vm = rig.service.registry.get(id);
  const { run } = vm;
  rig.faults.diskBytes = 11 * 1024 ** 3;
  isGated = true;
  const swept = rig.service.sweep.pass();
  await expect.poll(() => vm.record.state, SOON).toBe("failed");
  const deleting = rig.client.delete(`/vms/${id}/delete`);
  await expect.poll(() => vm.record.state, SOON).toBe("deleting");
  // Its disk is slow; its owner does not live on for that.
  await expect.poll(() => run?.isLost, SOON).toBe(true);
  gate.resolve();
  expect((await deleting).json()).toEqual({ ok: true });
  await swept;
});

test("a held create that is left while its disk is made is cancelled, and is no failure of a VM", async () => {
  const [reached, gate] = [defer<void>(), defer<void>()];
  const diskGate = async () => {
    reached.resolve();
    await gate.promise;
  };
  const rig = await rigWith({ faults: { diskGate } });
  const leave = rig.client.begin("/vms/create?hold=true", {});
  await reached.promise;
  const [vm] = rig.service.registry.list();
  leave();
  await expect.poll(() => vm?.startAbort?.signal.aborted, SOON).toBe(true);
  gate.resolve();
  await expect.poll(() => rig.service.registry.list().length, SOON).toBe(0);
  expect(await findingsOf(rig)).toEqual([]);
  const created = rig.log.find(({ message, route }) => message === "act" && route === "create");
  expect(created).toMatchObject({ result: "cancelled" });
});

test("a create whose VM is deleted while its disk is made says that it was cancelled", async () => {
  const [reached, gate] = [defer<void>(), defer<void>()];
  const diskGate = async () => {
    reached.resolve();
    await gate.promise;
  };
  const rig = await rigWith({ faults: { diskGate } });
  const creating = rig.client.post("/vms/create", {});
  await reached.promise;
  const [vm] = rig.service.registry.list();
  const deleting = rig.client.delete(`/vms/${vm?.id}/delete`);
  await expect.poll(() => vm?.record.state, SOON).toBe("deleting");
  gate.resolve();
  expect((await deleting).json()).toEqual({ ok: true });
  expect(errorOf(await creating)).toMatchObject({ kind: "cancelled", status: 499 });
});

test("a run whose client leaves before its VM has an id starts no VM", async () => {
  const [reached, gate] = [defer<void>(), defer<void>()];
  let checks = 0;
  const freeDiskBytes = async () => {
    checks += 1;
    // The first is the plan's.
    if (checks === 2) {
      reached.resolve();
      await gate.promise;
    }
    return 100 * 1024 ** 3;
  };
  const rig = await rigWith({ powers: { freeDiskBytes } });
  const leave = rig.client.begin("/run", { command: "true" });
  await reached.promise;
  leave();
  const { http } = rig.service.server;
  const connections = () => new Promise((resolve) => http.getConnections((_thrown, count) => resolve(count)));
  await expect.poll(connections, SOON).toBe(0);
  gate.resolve();
  await expect
    .poll(() => rig.log.find(({ message, route }) => message === "act" && route === "run"), SOON)
    .toMatchObject({ result: "cancelled" });
  expect(rig.log.filter(({ message }) => message === "VM brought up")).toEqual([]);
});

/** A temporary VM whose name is being written, which then fails. */
async function whilePersisting(): Promise<{
  readonly rig: Rig;
  readonly id: string;
  readonly persisting: ReturnType<Rig["client"]["post"]>;
  fail(): void;
}> {
  const [reached, gate] = [defer<void>(), defer<void>()];
  let isFull = true;
  const writeRecord = async (path: string, text: string) => {
    if (isFull && text.includes('"name":"kept"')) {
      reached.resolve();
      await gate.promise;
      isFull = false;
      throw new Failure("disk_full", "Cannot write: the disk is full");
    }
    await writeFileAtomic(path, text);
  };
  const rig = await rigWith({ options: { writeRecord } });
  const id = await createVm(rig);
  // That it runs is written after the answer: later, that write would be the first with the name.
  await rig.service.registry.settle(rig.service.registry.get(id));
  const persisting = rig.client.post(`/vms/${id}/persist`, { name: "kept" });
  await reached.promise;
  return { rig, id, persisting, fail: () => gate.resolve() };
}

test("a VM that is stopped while it is not persisted after all is gone, like every temporary one", async () => {
  const { rig, id, persisting, fail } = await whilePersisting();
  const { run } = rig.service.registry.get(id);
  const stopping = rig.client.post(`/vms/${id}/stop`);
  await expect.poll(() => run?.isLost, SOON).toBe(true);
  fail();
  expect(errorOf(await persisting)).toMatchObject({ kind: "disk_full" });
  expect((await stopping).status).toBe(200);
  expect(rig.service.registry.has(id)).toBe(false);
});

test("a VM that is lost while it is not persisted after all has failed, and has no name, on the disk as well", async () => {
  const { rig, id, persisting, fail } = await whilePersisting();
  const vm = rig.service.registry.get(id);
  rig.killOwners();
  await expect.poll(() => vm.record.state, SOON).toBe("failed");
  fail();
  expect(errorOf(await persisting)).toMatchObject({ kind: "disk_full" });
  await rig.service.registry.settle(vm);
  const { record } = vmFolder(rig.layout, id);
  expect(JSON.parse(readFileSync(record, "utf8"))).toMatchObject({ name: null, state: "failed" });
});

test("two renames of which the first is not recorded leave the name of the second", async () => {
  const folder = mkdtempSync(join(tmpdir(), "capsem-rename-"));
  const [reached, gate] = [defer<void>(), defer<void>()];
  const registry = new Registry(homeLayout(folder), async (_path, text) => {
    if (!text.includes('"name":"two"')) return;
    reached.resolve();
    await gate.promise;
    throw new Failure("disk_full", "Cannot write: the disk is full");
  });
  const watch = { changed: () => undefined };
  const lifecycle = new Lifecycle({ registry, watch } as unknown as LifecycleParts);
  try {
    const vm = new Vm(RECORD, 0);
    registry.add(vm);
    const first = lifecycle.rename(vm, "two");
    await reached.promise;
    const second = lifecycle.rename(vm, "three");
    gate.resolve();
    await expect(first).rejects.toMatchObject({ kind: "disk_full" });
    await expect(second).resolves.toBe(undefined);
    expect(vm.record.name).toBe("three");
    expect([registry.isNameFree("one"), registry.isNameFree("two")]).toEqual([true, true]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

const RECORD: VmRecord = {
  schema: 1,
  id: "vm_aaaaaaaaaaaaaaaa",
  name: "one",
  state: "stopped",
  reason: null,
  cpus: 1,
  memory_mib: 512,
  created_at: "2026-01-01T00:00:00.000Z",
  started_at: null,
  failed_at: null,
  image: "sha256:fake",
  env: {},
};
