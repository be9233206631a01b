import { mkdirSync, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ServiceStats } from "@capsem/api";
import { expect, test } from "vitest";
import { RouteCounts } from "./stats/route-counts.ts";
import { createVm, errorOf, useRigs } from "./testing/use-rigs.ts";

const rigWith = useRigs();

test("stats count what the service did, and what it has", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  await rig.client.post(`/vms/${id}/exec`, { command: "true" });
  const other = await createVm(rig);
  await rig.client.delete(`/vms/${other}/delete`);
  await rig.client.get("/vms/vm_aaaaaaaaaaaaaaaa/info");
  rig.script({ crash: "claim" });
  await rig.client.post("/vms/create", {});
  const job = rig.client.post(`/vms/${id}/exec`, { command: "sleep 600" });
  await expect
    .poll(async () => (await rig.client.get("/stats")).json<ServiceStats>().jobs)
    .toEqual({ running: 1, started: 2 });
  const stats = (await rig.client.get("/stats")).json<ServiceStats>();
  expect(stats.vms).toEqual({ running: 1, total: 1, created: 2, deleted: 1, failed: 1 });
  expect(stats.routes.find(({ route }) => route === "create")).toMatchObject({ calls: 3, failed: 1 });
  expect(stats.routes.find(({ route }) => route === "info")).toMatchObject({ calls: 1, failed: 1 });
  // The exec and the question itself.
  expect(stats.requests.in_flight).toBe(2);
  for (const bytes of Object.values(stats.memory)) expect(bytes).toBeGreaterThan(1_000_000);
  await rig.client.delete(`/vms/${id}/delete`);
  await job;
});

test("a frozen owner does not hold up stats", async () => {
  const rig = await rigWith();
  const id = await createVm(rig);
  const pid = rig.service.registry.get(id).run?.pid ?? 0;
  process.kill(pid, "SIGSTOP");
  expect((await rig.client.get("/stats")).json<ServiceStats>().jobs.running).toBe(0);
});

test("percentiles are of the last calls, and a client that left has not failed", () => {
  const counts = new RouteCounts();
  const event = { route: "info", mutates: false, vmId: null };
  for (let ms = 1; ms <= 1_000; ms += 1) {
    counts.began();
    counts.ended(event, ms, null);
  }
  expect(counts.shown().routes).toEqual([
    { route: "info", calls: 1000, failed: 0, p50_ms: 872, p99_ms: 998, max_ms: 1000 },
  ]);
  expect(counts.shown().requests).toEqual({ total: 1000, failed: 0, in_flight: 0 });
});

test("host logs are the service's, the gateway's, and all owners' in the order of time", async () => {
  const rig = await rigWith();
  const ids = [await createVm(rig), await createVm(rig)];
  const line = (second: number, message: string) =>
    `${JSON.stringify({ source: "owner", time: `2026-01-01T00:00:0${second}.000Z`, message })}\n`;
  const logOf = (id: string | undefined) => join(rig.layout.vms, `${id}`, "logs", "owner.jsonl");
  await rig.client.get("/host-logs/owner");
  writeFileSync(logOf(ids[0]), `${line(1, "a")}${line(3, "c")}`);
  writeFileSync(logOf(ids[1]), `${line(2, "b")}no json\n${line(4, "d")}`);
  writeFileSync(join(rig.layout.logs, "gateway.jsonl"), '{"message":"from the gateway"}\n');
  const read = async (query: string) =>
    (await rig.client.get(`/host-logs/${query}`)).json<{ lines: string[]; truncated: boolean }>();
  const all = await read("owner");
  const shown = all.lines.map((text) => JSON.parse(text) as { vm_id: string; message: string });
  expect(shown.map(({ message }) => message)).toEqual(["a", "b", "no json", "c", "d"]);
  expect(shown.map(({ vm_id }) => vm_id)).toEqual([ids[0], ids[1], ids[1], ids[0], ids[1]]);
  expect(await read("owner?tail=2")).toMatchObject({ lines: all.lines.slice(3), truncated: true });
  expect(await read("owner?grep=json")).toMatchObject({ lines: [all.lines[2]] });
  expect((await read("owner?max_bytes=200")).truncated).toBe(true);
  expect(await read("gateway")).toEqual({ lines: ['{"message":"from the gateway"}'], truncated: false });
  expect(await read("service")).toEqual({ lines: [], truncated: false });
  expect(await read("proxy")).toEqual({ lines: [], truncated: false });
  expect(errorOf(await rig.client.get("/host-logs/bus")).kind).toBe("invalid_input");
  expect(errorOf(await rig.client.get("/host-logs/..%2f..%2fsettings")).kind).toBe("invalid_input");
});

test("logs that nobody wrote for a week go, a few folders a pass, and open files stay", async () => {
  const rig = await rigWith();
  const running = await createVm(rig);
  const stopped = await createVm(rig, { name: "kept" });
  await rig.client.post(`/vms/${stopped}/stop`);
  const old = (folder: string, ...names: string[]) => {
    mkdirSync(folder, { recursive: true });
    for (const name of names) {
      writeFileSync(join(folder, name), "x");
      utimesSync(join(folder, name), 1, 1);
    }
  };
  const logsOf = (id: string) => join(rig.layout.vms, id, "logs");
  old(rig.layout.logs, "service.jsonl", "service.jsonl.1", "gateway.jsonl", "gateway.jsonl.2", "notes.txt");
  old(rig.layout.panics, "2001-service-1.json");
  old(logsOf(running), "console.log", "owner.jsonl.1");
  old(logsOf(stopped), "console.log", "guest.jsonl.2");
  writeFileSync(join(logsOf(stopped), "owner.jsonl"), "fresh");
  rig.advance(2 * 3600_000);
  await rig.service.oldLogs.pass();
  expect(readdirSync(rig.layout.logs).sort()).toEqual([
    "gateway.jsonl",
    "notes.txt",
    "panics",
    "service.jsonl",
  ]);
  expect(readdirSync(rig.layout.panics)).toEqual([]);
  expect(readdirSync(logsOf(running)).sort()).toEqual(["console.log", "owner.jsonl"]);
  expect(readdirSync(logsOf(stopped)).sort()).toEqual(["owner.jsonl"]);
});

test("a request that came through the gateway is logged as such, any other as the user's", async () => {
  const rig = await rigWith();
  const as = (requester: string) =>
    rig.client.call("GET", "/health", { headers: { "x-capsem-requester": requester } });
  await as("gateway");
  await as("root");
  await rig.client.get("/health");
  const acts = rig.log.filter(({ message }) => message === "act");
  expect(acts.map(({ requester }) => requester)).toEqual(["gateway", "uid 1000", "uid 1000"]);
});

test.each(["__proto__=1", "constructor=1", "toString=1", "__proto__=1&__proto__=2", "hasOwnProperty=x"])(
  "the unknown parameter %s is refused",
  async (query) => {
    const { client } = await rigWith();
    for (const path of ["/health", "/vms/list", "/panics"])
      expect(errorOf(await client.get(`${path}?${query}`)).kind).toBe("invalid_input");
  },
);

test("an unknown key of a body is refused, whatever it is called", async () => {
  const { client } = await rigWith();
  for (const body of ['{"__proto__":{}}', '{"constructor":1}'])
    expect(errorOf(await client.call("POST", "/purge", { bytes: Buffer.from(body) })).kind).toBe(
      "invalid_input",
    );
});
