import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { panic as panicSchema } from "@capsem/api";
import { expect, test } from "vitest";
import { createVm, errorOf, untilState, useRigs } from "./testing/use-rigs.ts";
import { panicOf, writePanic } from "./trouble/panic.ts";

const rigWith = useRigs();

interface Panics {
  panics: { process: string; message: string; pid: number; time: string }[];
  truncated: boolean;
}
interface Findings {
  findings: { kind: string; title: string; count: number; vm_id: string | null; detail: string }[];
  truncated: boolean;
}

test("an owner that dies by a signal leaves a panic and a finding; one that is told to end leaves none", async () => {
  const rig = await rigWith();
  const kept = await createVm(rig);
  await rig.client.delete(`/vms/${kept}/delete`);
  const id = await createVm(rig);
  rig.killOwners();
  await untilState(rig, id, "failed");
  await expect.poll(() => readdirSync(rig.layout.panics).length).toBe(1);
  const { panics } = (await rig.client.get("/panics")).json<Panics>();
  expect(panics).toMatchObject([
    { process: "owner", message: "ended (signal SIGKILL)", location: `VM ${id}` },
  ]);
  const { findings } = (await rig.client.get("/triage")).json<Findings>();
  expect(findings.map(({ kind }) => kind)).toEqual(["panic", "vm_failed"]);
  expect(findings[1]).toMatchObject({ vm_id: id, title: "VM failed: owner_lost", count: 1 });
  const ofVm = (await rig.client.get(`/triage?vm_id=${id}`)).json<Findings>();
  expect(ofVm.findings.map(({ kind }) => kind)).toEqual(["panic", "vm_failed"]);
  const ofOther = (await rig.client.get(`/triage?vm_id=${kept}`)).json<Findings>();
  expect(ofOther.findings).toEqual([]);
  rig.advance(3600_000);
  expect((await rig.client.get("/triage?since=30m")).json()).toEqual({ findings: [], truncated: false });
  expect((await rig.client.get("/panics?since=30m")).json()).toEqual({ panics: [], truncated: false });
  expect((await rig.client.get("/panics?since=2h")).json<Panics>().panics).toHaveLength(1);
});

test("an owner's uncaught error is a panic with its message and frames", async () => {
  const rig = await rigWith({ script: { uncaught: "claim" } });
  expect(errorOf(await rig.client.post("/vms/create", {})).kind).toBe("start_failed");
  await expect.poll(() => readdirSync(rig.layout.panics).length).toBe(1);
  const { panics } = (await rig.client.get("/panics")).json<Panics>();
  expect(panics).toMatchObject([
    {
      process: "owner",
      message: "Error: scripted crash",
      location: expect.stringMatching(/^at /),
      frames: expect.arrayContaining([expect.stringMatching(/^at /)]),
    },
  ]);
  const { findings } = (await rig.client.get("/triage")).json<Findings>();
  expect(findings.map(({ kind, title }) => `${kind}: ${title}`)).toEqual([
    "panic: owner: Error: scripted crash",
    "vm_failed: VM failed: owner_lost",
    "server_error: create failed: start_failed",
  ]);
});

const VM = "vm_abcdefghij234567";
test.each([
  [`/vms/${VM}/info`, VM],
  [`/ledgers/${VM}/verify`, VM],
  ["/vms/host/timeline", null],
  // A server may be called so.
  [`/mcp/servers/${VM}/tools`, null],
])("an act is of a VM where its path names one: %s", async (path, vmId) => {
  const rig = await rigWith();
  await rig.client.get(path);
  expect(rig.log.filter(({ message }) => message === "act").at(-1)?.vm_id).toBe(vmId);
});

test("alike findings are one, with how often", async () => {
  const rig = await rigWith({ script: { gone: { at: "claim", reason: "hypervisor_exit" } } });
  for (let count = 0; count < 3; count += 1) await rig.client.post("/vms/create", {});
  const { findings, truncated } = (await rig.client.get("/triage?limit=1")).json<Findings>();
  expect(findings).toMatchObject([{ kind: "vm_failed", count: 3, vm_id: null }]);
  expect(truncated).toBe(true);
});

test("owners that are killed are one finding, of no one VM", async () => {
  const rig = await rigWith();
  for (let count = 0; count < 2; count += 1) {
    const id = await createVm(rig);
    rig.killOwners();
    await untilState(rig, id, "failed");
  }
  await expect.poll(() => readdirSync(rig.layout.panics).length).toBe(2);
  const { findings } = (await rig.client.get("/triage")).json<Findings>();
  expect(findings[0]).toMatchObject({ title: "owner: ended (signal SIGKILL)", count: 2, vm_id: null });
});

test("an operation over its promise is a finding", async () => {
  const rig = await rigWith({ script: { readyDelayMs: 500 } });
  await createVm(rig);
  expect((await rig.client.get("/triage")).json<Findings>().findings).toEqual([]);
  const creating = rig.client.post("/vms/create", {});
  await expect.poll(() => rig.service.registry.list().length).toBe(2);
  rig.advance(2_500);
  expect((await creating).status).toBe(200);
  const { findings } = (await rig.client.get("/triage")).json<Findings>();
  expect(findings).toMatchObject([{ kind: "slow", title: "create took longer than 2000 ms", count: 1 }]);
});

test("a file among the panics that is none is passed over", async () => {
  const rig = await rigWith();
  writeFileSync(join(rig.layout.panics, "2026-cut.json"), '{"process":');
  writeFileSync(join(rig.layout.panics, "2026-large.json"), " ".repeat(1_000_000));
  writeFileSync(join(rig.layout.panics, "2026-other.json"), '{"time":"never"}');
  expect((await rig.client.get("/panics")).json()).toEqual({ panics: [], truncated: false });
});

test("what the gateway says in its log as it dies is a panic", async () => {
  const rig = await rigWith();
  const line = {
    time: "2026-01-02T00:00:00.000Z",
    level: "error",
    message: "panic",
    detail: "Error: no\n    at x (y:1)",
  };
  writeFileSync(
    join(rig.layout.logs, "gateway.jsonl"),
    `${JSON.stringify(line)}\n{"message":"panic"}\n{"message":"panic\n`,
  );
  const { panics } = (await rig.client.get("/panics")).json<Panics>();
  expect(panics).toMatchObject([{ process: "gateway", message: "Error: no", location: "at x (y:1)" }]);
  const { findings } = (await rig.client.get("/triage")).json<Findings>();
  expect(findings).toMatchObject([{ kind: "panic", title: "gateway: Error: no", detail: "at x (y:1)" }]);
});

test("a gateway whose log ends without a word of its end is a panic, and one that runs is not", async () => {
  const rig = await rigWith();
  const at = (second: number) => `2026-01-02T00:00:0${second}.000Z`;
  const lines = (...said: string[]) =>
    said.map((message, second) => `${JSON.stringify({ time: at(second), level: "info", message })}\n`);
  const tell = (...said: string[]) =>
    writeFileSync(join(rig.layout.logs, "gateway.jsonl"), lines(...said).join(""));
  const panics = async () => (await rig.client.get("/panics")).json<Panics>().panics;
  tell("started", "asked to stop", "stopped", "started", "asked to stop", "stopped");
  expect(await panics()).toEqual([]);
  tell("started", "service away", "started", "stopped");
  const message = "the gateway ended without a word (killed, or the machine stopped)";
  const lost = { process: "gateway", message };
  expect(await panics()).toMatchObject([{ ...lost, time: at(2), location: `its log ends at ${at(1)}` }]);
  tell("started", "stopped", "started");
  expect(await panics()).toMatchObject([{ ...lost, time: at(2) }]);
  writeFileSync(join(rig.layout.run, "gateway.pid"), `${process.pid}\n`);
  expect(await panics()).toEqual([]);
  expect((await rig.client.get("/triage")).json<Findings>().findings).toEqual([]);
  writeFileSync(join(rig.layout.run, "gateway.pid"), "4194305\n");
  const { findings } = (await rig.client.get("/triage")).json<Findings>();
  expect(findings).toMatchObject([{ kind: "panic", title: `gateway: ${message}` }]);
});

test("panics are kept by count, the newest are listed first", async () => {
  const rig = await rigWith();
  for (let second = 0; second < 60; second += 1) {
    const time = new Date(Date.UTC(2026, 0, 1, 0, 0, second));
    writePanic(rig.layout.panics, panicOf({ process: "gateway", pid: 7, time, thrown: new Error("x") }));
  }
  expect(readdirSync(rig.layout.panics)).toHaveLength(50);
  const { panics, truncated } = (await rig.client.get("/panics?limit=2")).json<Panics>();
  expect(panics.map(({ time }) => time)).toEqual(["2026-01-01T00:00:59.000Z", "2026-01-01T00:00:58.000Z"]);
  expect(truncated).toBe(true);
});

test("a panic has the message of several lines, sixteen frames, and no more than fits", () => {
  const error = new Error("x".repeat(5_000));
  error.stack = `Error: one\ntwo\n${Array.from({ length: 40 }, (_, at) => `    at f${at} (a.ts:${at})`).join("\n")}`;
  const made = panicSchema.parse(panicOf({ process: "owner", pid: 1, time: new Date(0), thrown: error }));
  expect(made).toMatchObject({ message: "Error: one\ntwo", location: "at f0 (a.ts:0)" });
  expect(made.frames).toHaveLength(16);
  expect(
    panicOf({ process: "owner", pid: 1, time: new Date(0), thrown: "x".repeat(9_000) }).message,
  ).toHaveLength(1_000);
});

test("since takes a span or a time, and nothing else", async () => {
  const { client } = await rigWith();
  for (const since of ["30s", "7d", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00%2B02:00"])
    expect((await client.get(`/panics?since=${since}`)).status).toBe(200);
  for (const since of ["0s", "1y", "now", "", "2026-01-01", "-1s"])
    expect(errorOf(await client.get(`/panics?since=${since}`)).kind).toBe("invalid_input");
  expect(errorOf(await client.get("/panics?limit=0")).kind).toBe("invalid_input");
  expect(errorOf(await client.get("/triage?vm_id=x")).kind).toBe("invalid_input");
});

test("a client that leaves while its VM starts is no finding", async () => {
  const rig = await rigWith({ script: { hang: "claim" } });
  const leave = rig.client.begin("/vms/create?hold=true", {});
  await expect.poll(() => rig.service.registry.list().length).toBe(1);
  leave();
  await expect.poll(() => rig.service.registry.list().length, { timeout: 30_000 }).toBe(0);
  expect((await rig.client.get("/triage")).json<Findings>().findings).toEqual([]);
  expect(readdirSync(rig.layout.panics)).toEqual([]);
});
