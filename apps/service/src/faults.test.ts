import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, sleep } from "@capsem/base";
import { expect, test } from "vitest";
import { readJsonFile, writeFileAtomic } from "./home/atomic-file.ts";
import { vmFolder } from "./home/layout.ts";
import { VM_LIMITS } from "./limits.ts";
import type { FakePoint, FakeScript } from "./testing/fake-script.ts";
import type { Rig } from "./testing/rig.ts";
import { createVm, errorOf, expectBaseline, infoOf, untilState, useRigs } from "./testing/use-rigs.ts";
import { removePath } from "./vm/remove-files.ts";

const rigWith = useRigs();

const FORK = ["fork"] as const;
const STEPS: { what: string; script: FakeScript; says: string }[] = [
  { what: "the owner crashes at once", script: { crash: "start", only: FORK }, says: "owner_lost" },
  {
    what: "the owner crashes before it is ready",
    script: { crash: "ready", only: FORK },
    says: "owner_lost",
  },
  {
    what: "the owner crashes at the claim and leaves its hypervisor",
    script: { crash: "claim", only: FORK, hypervisorOutlives: true },
    says: "owner_lost",
  },
  {
    what: "the owner says that the boot took too long",
    script: { gone: { at: "ready", reason: "boot_timeout" }, only: FORK },
    says: "boot_timeout",
  },
  {
    what: "the hypervisor ends at the claim",
    script: { gone: { at: "claim", reason: "hypervisor_exit" }, only: FORK },
    says: "hypervisor_exit",
  },
];

test("a create leaves nothing at whatever step its owner fails", async () => {
  const rig = await rigWith();
  const { client } = rig;
  await client.delete(`/vms/${await createVm(rig)}/delete`);
  const before = rig.counts();
  for (const { what, script, says } of STEPS) {
    rig.script(script);
    const refused = errorOf(await client.post("/vms/create", { name: "again" }));
    expect(refused, what).toMatchObject({ kind: "start_failed", status: 502 });
    expect(refused.reason, what).toContain(says);
    await expectBaseline(rig, before);
  }
  expect(rig.service.registry.list()).toEqual([]);
  rig.script({});
  await createVm(rig, { name: "again" });
});

test("a create leaves nothing when its disk or its record cannot be made", async () => {
  let isFull = false;
  const rig = await rigWith({
    options: {
      writeRecord: async (path, text) => {
        if (isFull) throw new Failure("disk_full", "Cannot write: the disk is full");
        await writeFileAtomic(path, text);
      },
    },
  });
  await rig.client.delete(`/vms/${await createVm(rig)}/delete`);
  const before = rig.counts();
  rig.faults.createDisk = new Failure("disk_full", "Cannot create disk: no space");
  expect(errorOf(await rig.client.post("/vms/create", { name: "n" })).kind).toBe("disk_full");
  delete rig.faults.createDisk;
  isFull = true;
  expect(errorOf(await rig.client.post("/vms/create", { name: "n" })).kind).toBe("disk_full");
  isFull = false;
  await expectBaseline(rig, before);
  await createVm(rig, { name: "n" });
});

test("a deletion that meets resisting files is final all the same, and tried again", async () => {
  let resists = true;
  const rig = await rigWith({
    options: {
      removePath: async (path) => {
        if (resists && path.endsWith("disk.qcow2")) throw new Error("EBUSY");
        await removePath(path);
      },
    },
  });
  const id = await createVm(rig, { name: "stuck" });
  expect(errorOf(await rig.client.delete(`/vms/${id}/delete`)).kind).toBe("internal");
  expect(await infoOf(rig, id)).toMatchObject({ state: "deleting" });
  expect(errorOf(await rig.client.post(`/vms/${id}/start`)).kind).toBe("wrong_state");
  expect(rig.counts().processes).toBe(0);
  resists = false;
  await rig.service.sweep.pass();
  expect((await rig.client.get(`/vms/${id}/info`)).status).toBe(404);
  expect(rig.counts().folders).toBe(0);
});

test("a retained VM whose start fails is failed, with the log's tail, and starts later", async () => {
  const rig = await rigWith();
  const id = await createVm(rig, { name: "kept" });
  await rig.client.post(`/vms/${id}/stop`);
  rig.script({ gone: { at: "ready", reason: "boot_timeout" } });
  expect(errorOf(await rig.client.post(`/vms/${id}/start`)).reason).toContain("boot_timeout");
  const failed = await infoOf(rig, id);
  expect(failed).toMatchObject({ state: "failed", reason: "boot_timeout" });
  expect(failed.log_tail).toContain("hypervisor runs");
  rig.script({});
  expect((await rig.client.post(`/vms/${id}/start`)).json()).toMatchObject({
    state: "running",
    reason: null,
  });
});

test("a retained VM that dies is stopped, a temporary one failed and kept for a while", async () => {
  const rig = await rigWith();
  const [kept, temporary] = [await createVm(rig, { name: "kept" }), await createVm(rig)];
  for (const id of [kept, temporary])
    await rig.client.post(`/vms/${id}/exec`, { argv: ["!gone", "guest_lost"] });
  expect(await untilState(rig, kept, "stopped")).toMatchObject({ reason: "guest_lost" });
  expect(await untilState(rig, temporary, "failed")).toMatchObject({ reason: "guest_lost" });
  expect(errorOf(await rig.client.post(`/vms/${temporary}/start`)).kind).toBe("wrong_state");
  await rig.service.sweep.pass();
  expect((await infoOf(rig, temporary)).log_tail).toContain("claimed");
  rig.advance(15 * 60_000);
  await rig.service.sweep.pass();
  expect(rig.service.registry.list().map(({ id }) => id)).toEqual([kept]);
  expect((await rig.client.post(`/vms/${kept}/start`)).json()).toMatchObject({ state: "running" });
});

/** Its owner hangs, and its hypervisor would go with it: not each process that is there has come so far. */
async function untilHung({ service: { registry } }: Rig): Promise<void> {
  const said = () => registry.list()[0]?.logs?.tail(10).join("\n") ?? "";
  await expect.poll(said, { timeout: 30_000 }).toContain("hypervisor runs");
  expect(registry.list()[0]?.record.state).toBe("starting");
}

test.each<FakePoint>(["ready", "claim"])(
  "a VM that hangs at its %s can be stopped and deleted",
  async (point) => {
    const rig = await rigWith({ script: { hang: point, only: FORK } });
    const creating = rig.client.post("/vms/create", { name: "hung" });
    await untilHung(rig);
    const id = rig.service.registry.list()[0]?.id ?? "";
    const startedMs = performance.now();
    expect((await rig.client.delete(`/vms/${id}/delete`)).json()).toEqual({ ok: true });
    expect(performance.now() - startedMs).toBeLessThan(5_000);
    expect((await creating).status).toBe(499);
    await expect.poll(() => rig.counts(), { timeout: 30_000 }).toMatchObject({ folders: 0, processes: 0 });
  },
);

test("a client that holds a VM and leaves while it starts takes it along at once", async () => {
  const rig = await rigWith({ script: { hang: "ready", only: FORK } });
  const leave = rig.client.begin("/vms/create?hold=true", {});
  await untilHung(rig);
  leave();
  await expect.poll(() => rig.counts(), { timeout: 10_000 }).toMatchObject({ folders: 0, processes: 0 });
  expect(rig.service.registry.list()).toEqual([]);
});

test("a disk above its quota stops a retained VM and fails a temporary one", async () => {
  const rig = await rigWith();
  const [kept, temporary] = [await createVm(rig, { name: "kept" }), await createVm(rig)];
  rig.faults.diskBytes = 11 * 1024 ** 3;
  await rig.service.sweep.pass();
  expect(await infoOf(rig, kept)).toMatchObject({ state: "stopped", reason: "disk_quota" });
  expect(await infoOf(rig, temporary)).toMatchObject({ state: "failed", reason: "disk_quota" });
  expect(rig.counts().processes).toBe(0);
});

test("what an owner writes beside its disk counts, in bytes and in files", async () => {
  const rig = await rigWith();
  const [large, many, good] = [await createVm(rig), await createVm(rig), await createVm(rig)];
  const jobsOf = (id: string) => vmFolder(rig.layout, id).jobs;
  rig.faults.diskBytes = VM_LIMITS.diskAllocatedBytesMax - 512 * 1024;
  writeFileSync(join(jobsOf(large), "spool"), Buffer.alloc(1024 ** 2, 1));
  mkdirSync(join(jobsOf(many), "deep"));
  for (let file = 0; file < VM_LIMITS.jobEntriesMax; file++)
    writeFileSync(join(jobsOf(many), "deep", `${file}`), "");
  await rig.service.sweep.pass();
  for (const id of [large, many]) {
    expect(await infoOf(rig, id)).toMatchObject({ state: "failed", reason: "disk_quota" });
  }
  expect(await infoOf(rig, good)).toMatchObject({ state: "running" });
});

test("idle and old VMs end, but not while a job runs", async () => {
  const rig = await rigWith({ settings: { "limits.idle_secs": 60, "limits.lifetime_secs": 1000 } });
  const [idle, busy] = [await createVm(rig, { name: "idle" }), await createVm(rig)];
  const job = rig.client.post(`/vms/${busy}/exec`, { argv: ["sleep", "300"] });
  await expect.poll(() => rig.service.registry.get(busy).activeCount, { timeout: 30_000 }).toBe(1);
  rig.advance(61_000);
  await rig.service.sweep.pass();
  expect(await infoOf(rig, idle)).toMatchObject({ state: "stopped", reason: "idle" });
  expect(await infoOf(rig, busy)).toMatchObject({ state: "running" });
  rig.advance(1_000_000);
  await rig.service.sweep.pass();
  expect(errorOf(await job).kind).toBe("vm_gone");
  expect((await rig.client.get(`/vms/${busy}/info`)).status).toBe(404);
});

test("a clock that somebody sets ends no VM before its time", async () => {
  const rig = await rigWith({ settings: { "limits.idle_secs": 60, "limits.lifetime_secs": 1000 } });
  const id = await createVm(rig);
  rig.setWallAhead(365 * 24 * 3600_000);
  await rig.service.sweep.pass();
  expect(await infoOf(rig, id)).toMatchObject({ state: "running" });
  rig.setWallAhead(-365 * 24 * 3600_000);
  rig.advance(1_001_000);
  await rig.service.sweep.pass();
  expect((await rig.client.get(`/vms/${id}/info`)).status).toBe(404);
});

test("a service that stops while a disk is slow still leaves the record of a VM that failed just now", async () => {
  const writeRecord = async (path: string, text: string) => {
    if (text.includes('"state":"failed"')) await sleep(500);
    await writeFileAtomic(path, text);
  };
  const rig = await rigWith({ options: { writeRecord } });
  const id = await createVm(rig);
  rig.killOwners();
  await untilState(rig, id, "failed");
  await rig.service.close();
  const record = await readJsonFile(vmFolder(rig.layout, id).record);
  expect(record).toMatchObject({ state: "failed" });
});

test("a failed VM tells its last lines also after a restart, and goes in its time", async () => {
  const first = await rigWith();
  const id = await createVm(first);
  first.killOwners();
  await untilState(first, id, "failed");
  const said = (await infoOf(first, id)).log_tail ?? [];
  expect(said).toContain("claimed");
  await first.service.close();
  const second = await rigWith({ home: first.layout.home });
  expect((await infoOf(second, id)).log_tail).toEqual(said);
  second.setWallAhead(24 * 3600_000);
  await second.service.sweep.pass();
  expect((await infoOf(second, id)).state).toBe("failed");
  second.advance(15 * 60_000);
  await second.service.sweep.pass();
  expect((await second.client.get(`/vms/${id}/info`)).status).toBe(404);
});
