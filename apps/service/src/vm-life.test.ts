import { statSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createClient } from "./testing/client.ts";
import {
  createVm,
  errorOf,
  expectBaseline,
  infoOf,
  untilState,
  useRigs,
  type VmShown,
} from "./testing/use-rigs.ts";

const rigWith = useRigs();

test("a VM is created, runs a command, is listed and deleted", async () => {
  const rig = await rigWith();
  const { client } = rig;
  const id = await createVm(rig, { name: "first", env: { COLOUR: "blau" } });
  expect(await infoOf(rig, id)).toMatchObject({ state: "running", health: { owner: "ok", guest: "ok" } });
  const exec = await client.post(`/vms/${id}/exec`, { command: 'echo "$COLOUR"; echo no >&2; exit 3' });
  expect(exec.json()).toMatchObject({
    exit_code: 3,
    stdout: { encoding: "utf8", data: "blau\n", truncated: false },
    stderr: { data: "no\n" },
  });
  expect((await client.get("/vms/list")).json<{ vms: unknown[] }>().vms).toHaveLength(1);
  expect((await client.get("/status")).json()).toMatchObject({ vms: { running: 1, total: 1 } });
  expect((await client.delete(`/vms/${id}/delete`)).json()).toEqual({ ok: true });
  expect((await client.get(`/vms/${id}/info`)).status).toBe(404);
  expect((await client.delete(`/vms/${id}/delete`)).status).toBe(404);
  expect(rig.counts().folders).toBe(0);
});

test("a retained VM keeps its files and environment over stop and start", async () => {
  const rig = await rigWith();
  const { client } = rig;
  const id = await createVm(rig, { name: "kept", env: { SHADE: "grün" } });
  await client.post(`/vms/${id}/exec`, { command: "echo data > file" });
  expect((await client.post(`/vms/${id}/stop`)).status).toBe(200);
  expect(await infoOf(rig, id)).toMatchObject({ state: "stopped", reason: null, health: null });
  expect(errorOf(await client.post(`/vms/${id}/exec`, { command: "true" })).kind).toBe("wrong_state");
  expect(errorOf(await client.post(`/vms/${id}/stop`)).kind).toBe("wrong_state");
  expect((await client.post(`/vms/${id}/start`)).json()).toMatchObject({ state: "running" });
  expect(errorOf(await client.post(`/vms/${id}/start`)).kind).toBe("wrong_state");
  const exec = await client.post(`/vms/${id}/exec`, { command: 'cat file; echo "$SHADE"' });
  expect(exec.json()).toMatchObject({ stdout: { data: "data\ngrün\n" } });
  expect((await client.post(`/vms/${id}/restart`)).json()).toMatchObject({ state: "running" });
  expect(statSync(join(rig.layout.vms, id, "vm.json")).mode & 0o777).toBe(0o600);
});

test("a temporary VM is gone after its stop", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  expect((await rig.client.post(`/vms/${id}/stop`)).status).toBe(200);
  expect((await rig.client.get(`/vms/${id}/info`)).status).toBe(404);
  expect(rig.counts()).toMatchObject({ folders: 0, processes: 0 });
});

test("names are unique, come with persist and rename, and are free after a delete", async () => {
  const rig = await rigWith();
  const { client } = rig;
  const [one, two] = [await createVm(rig, { name: "one" }), await createVm(rig)];
  expect(errorOf(await client.post("/vms/create", { name: "one" })).kind).toBe("name_taken");
  expect(errorOf(await client.post(`/vms/${two}/persist`, { name: "one" })).kind).toBe("name_taken");
  expect(errorOf(await client.post(`/vms/${two}/rename`, { name: "two" })).kind).toBe("wrong_state");
  expect((await client.post(`/vms/${two}/persist`, { name: "two" })).json()).toMatchObject({ name: "two" });
  expect(errorOf(await client.post(`/vms/${two}/persist`, { name: "zwei" })).kind).toBe("wrong_state");
  expect((await client.post(`/vms/${one}/rename`, { name: "uno" })).json()).toMatchObject({ name: "uno" });
  expect((await client.post(`/vms/${two}/rename`, { name: "one" })).json()).toMatchObject({ name: "one" });
  await client.delete(`/vms/${two}/delete`);
  await createVm(rig, { name: "one" });
  expect(rig.counts().folders).toBe(2);
});

test("a named VM whose start failed is kept by a purge, unless it is told to take all", async () => {
  const rig = await rigWith();
  const named = await createVm(rig, { name: "named" });
  await rig.client.post(`/vms/${named}/stop`);
  rig.script({ crash: "ready" });
  expect((await rig.client.post(`/vms/${named}/start`)).status).not.toBe(200);
  expect((await rig.client.post("/purge")).json()).toEqual({ deleted: [] });
  expect((await rig.client.post("/purge", { all: true })).json()).toEqual({ deleted: [named] });
});

test("purge takes temporary VMs, and retained ones only when told", async () => {
  const rig = await rigWith();
  const { client } = rig;
  const kept = await createVm(rig, { name: "kept" });
  const temporary = await createVm(rig);
  expect((await client.post("/purge")).json()).toEqual({ deleted: [temporary] });
  expect((await client.post("/purge", { all: true })).json()).toEqual({ deleted: [kept] });
  expect(rig.counts()).toMatchObject({ folders: 0, processes: 0 });
});

test("create refuses what is too much or not allowed, and makes nothing then", async () => {
  const rig = await rigWith({ settings: { "limits.retained_max": 1, "limits.running_max": 2 } });
  await createVm(rig, { name: "first" });
  const before = rig.counts();
  const refusal = async (body: unknown) => errorOf(await rig.client.post("/vms/create", body));
  expect(await refusal({ name: "next" })).toMatchObject({ kind: "quota", status: 429 });
  expect(await refusal({ cpus: 64 })).toMatchObject({ kind: "invalid_input", status: 400 });
  const words = "Cannot read the request: body: cpus: at most 64; colour: there is no such argument";
  expect((await refusal({ cpus: 65, colour: "red" })).reason).toBe(words);
  expect((await refusal({ memory_gib: 8 })).reason).toContain("8 GiB asked, limits 0.25 to 4");
  const variable = await refusal({ env: { LD_PRELOAD: "secret" } });
  expect(variable.kind).toBe("invalid_input");
  expect(variable.reason).not.toContain("secret");
  expect((await refusal({ colour: "red" })).kind).toBe("invalid_input");
  await expectBaseline(rig, before);
  await createVm(rig);
  expect((await refusal({})).reason).toContain("2 run, limit 2");
});

test("create is refused with the numbers when memory or disk are short", async () => {
  const poor = { availableMemoryBytes: () => 800 * 1024 ** 2 };
  const memory = errorOf(await (await rigWith({ powers: poor })).client.post("/vms/create", {}));
  expect(memory).toMatchObject({ kind: "quota", status: 429 });
  expect(memory.reason).toContain("672 MiB would be promised to VMs, limit 600");
  const full = { freeDiskBytes: async () => 1024 ** 3 };
  const disk = errorOf(await (await rigWith({ powers: full })).client.post("/vms/create", {}));
  expect(disk).toMatchObject({ kind: "disk_floor", status: 507 });
  expect(disk.reason).toContain("1024 MiB of disk are free, 2048 MiB must stay free");
});

test("a start that is under way is waited for by an exec", async () => {
  const rig = await rigWith({ script: { readyDelayMs: 300, only: ["fork"] } });
  const id = await createVm(rig, { name: "slow" });
  await rig.client.post(`/vms/${id}/stop`);
  const start = rig.client.post(`/vms/${id}/start`);
  await untilState(rig, id, "starting");
  const exec = await rig.client.post(`/vms/${id}/exec`, { argv: ["echo", "late"] });
  expect(exec.json()).toMatchObject({ exit_code: 0, stdout: { data: "late\n" } });
  expect((await start).status).toBe(200);
});

test("a held create says when it runs and when it is gone, and a client that leaves takes its VM along", async () => {
  const rig = await rigWith();
  const first = await rig.client.hold("/vms/create?hold=true", {});
  const { id, state } = (await first.lines.next()).value as VmShown;
  expect(state).toBe("running");
  await rig.client.delete(`/vms/${id}/delete`);
  expect((await first.lines.next()).value).toEqual({ gone: null });
  expect((await first.lines.next()).done).toBe(true);

  const second = await rig.client.hold("/vms/create?hold=true", {});
  const next = (await second.lines.next()).value as VmShown;
  second.leave();
  await expect.poll(() => rig.service.registry.has(next.id), { timeout: 30_000 }).toBe(false);
  expect(rig.counts()).toMatchObject({ folders: 0, processes: 0 });
});

test("bad requests are told apart from unknown routes", async () => {
  const { client } = await rigWith();
  expect(errorOf(await client.get("/nothing")).kind).toBe("route_not_found");
  expect(errorOf(await client.post("/status")).kind).toBe("route_not_found");
  expect(errorOf(await client.get("/vms/not-an-id/info")).kind).toBe("invalid_input");
  expect(errorOf(await client.get("/vms/vm_aaaaaaaaaaaaaaaa/info")).kind).toBe("vm_not_found");
  expect(errorOf(await client.get("/status?colour=red")).kind).toBe("invalid_input");
  const bad = await client.call("POST", "/vms/create", { bytes: Buffer.from("{") });
  expect(errorOf(bad).kind).toBe("invalid_input");
  const large = await client.call("POST", "/vms/create", { bytes: Buffer.alloc(11 * 1024 ** 2, 32) });
  expect(errorOf(large)).toMatchObject({ kind: "too_large", status: 413 });
  expect(errorOf(await client.get("/vms/vm_aaaaaaaaaaaaaaaa/stream")).kind).toBe("invalid_input");
});

test("a connected socket is served as the principal that it comes with", async () => {
  const rig = await rigWith();
  const path = join(rig.layout.run, "other.sock");
  const listener = createServer((socket) => {
    rig.service.server.handleConnection(socket, { kind: "gateway", name: "front" });
  });
  await new Promise<void>((resolve) => listener.listen(path, resolve));
  try {
    expect((await createClient(path).get("/health")).json()).toEqual({ ok: true });
    await rig.client.get("/health");
    const requesters = rig.log.filter(({ message }) => message === "act").map(({ requester }) => requester);
    expect(requesters).toEqual(["front", "uid 1000"]);
  } finally {
    await new Promise((resolve) => listener.close(resolve));
  }
});
