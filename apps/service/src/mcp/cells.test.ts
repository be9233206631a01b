import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { McpCallResult, McpInfo } from "@capsem/api";
import { native } from "@capsem/native";
import { expect, test } from "vitest";
import type { Powers } from "../powers.ts";
import { FakeLedger } from "../testing/fake-ledger.ts";
import { pidsWith, type Rig } from "../testing/rig.ts";
import { createVm, errorOf } from "../testing/use-rigs.ts";
import { useToolRigs } from "../testing/worker-rig.ts";

const startTools = useToolRigs();

async function call(rig: Rig, tool: string, more: Record<string, unknown> = {}): Promise<string> {
  const reply = await rig.client.post("/mcp/call", { server_id: "local", tool_id: tool, ...more });
  if (reply.status !== 200) return `${errorOf(reply).kind}: ${errorOf(reply).reason}`;
  const { result } = reply.json<McpCallResult>();
  return String((result as { content: { text: string }[] }).content[0]?.text);
}

const pidIn = (text: string) => Number(/\d+/.exec(text)?.[0]);

test("a call of the host starts what it needs and nothing else, and what was started carries the next one", async () => {
  const { rig, workers } = await startTools();
  const [first, second] = [await call(rig, "plain"), await call(rig, "plain")];
  expect(first).toBe(second);
  expect(workers.started).toEqual(["proxy host"]);
  const through = await call(rig, "aggregator");
  expect(await Promise.all([call(rig, "aggregator"), call(rig, "aggregator")])).toEqual([through, through]);
  expect(workers.started).toEqual(["proxy host", "aggregator host", "egress all"]);
  const { proxies } = (await rig.client.get("/mcp/info")).json<McpInfo>();
  expect(proxies).toEqual([{ scope: "host", aggregator: true, builtin: false, calls: 5 }]);
});

test("a VM has its own proxy, which is gone with it; another one's and the host's live on", async () => {
  const { rig, workers } = await startTools();
  const [one, other] = [await createVm(rig), await createVm(rig, { name: "other" })];
  expect(workers.started).toEqual([]);
  const pids: string[] = [];
  for (const vm_id of [one, other, undefined])
    pids.push(await call(rig, "plain", vm_id === undefined ? {} : { vm_id }));
  expect(new Set(pids).size).toBe(3);
  expect(await call(rig, "name", { vm_id: other })).toBe("other");
  await rig.client.delete(`/vms/${one}/delete`);
  await expect
    .poll(() => pidsWith("fake-tools.json").includes(pidIn(pids[0] ?? "")), { timeout: 10_000 })
    .toBe(false);
  expect(await call(rig, "plain", { vm_id: other })).toBe(pids[1]);
  expect(await call(rig, "plain")).toBe(pids[2]);
  await rig.client.post(`/vms/${other}/stop`);
  expect(await call(rig, "plain", { vm_id: other })).toContain("wrong_state");
  expect(await call(rig, "plain", { vm_id: one })).toContain("vm_not_found");
});

test("a renamed VM is judged by its new name, by the same proxy", async () => {
  const { rig } = await startTools();
  const vm_id = await createVm(rig, { name: "before" });
  const pid = await call(rig, "plain", { vm_id });
  await rig.client.post(`/vms/${vm_id}/rename`, { name: "after" });
  await expect.poll(() => call(rig, "name", { vm_id }), { timeout: 10_000 }).toBe("after");
  expect(await call(rig, "plain", { vm_id })).toBe(pid);
});

for (const kind of ["aggregator", "builtin"] as const) {
  test(`the death of one ${kind} ends its calls at once, and the next one is served; nobody else notices`, async () => {
    const { rig, workers } = await startTools();
    const [proxy, before] = [await call(rig, "plain"), await call(rig, kind)];
    process.kill(pidIn(before), "SIGKILL");
    const deadMs = performance.now();
    await expect
      .poll(() => call(rig, kind), { interval: 20, timeout: 5_000 })
      .toMatch(new RegExp(`^${kind} `));
    expect(performance.now() - deadMs).toBeLessThan(4_000);
    expect(await call(rig, kind)).not.toBe(before);
    expect(await call(rig, "plain")).toBe(proxy);
    expect(workers.started.filter((name) => name === `${kind} host`)).toHaveLength(2);
  });
}

test("the death of egress replaces it for everybody who has a way to it, and nobody else starts again", async () => {
  const { rig, workers } = await startTools();
  const aggregator = await call(rig, "aggregator");
  const before = await call(rig, "egress");
  expect(before).toMatch(/^egress \d+$/);
  process.kill(pidIn(before), "SIGKILL");
  await expect.poll(() => call(rig, "egress"), { interval: 20, timeout: 5_000 }).toMatch(/^egress \d+$/);
  expect(await call(rig, "egress")).not.toBe(before);
  expect(await call(rig, "aggregator")).toBe(aggregator);
  expect(workers.started).toEqual(["proxy host", "aggregator host", "egress all", "egress all"]);
});

/** Fake workers of which one kind cannot be started while the test says so. */
async function startFailing(kind: string) {
  const failing = { isNow: true, count: 0 };
  let start: Powers["startWorker"] | undefined;
  const { rig, workers } = await startTools({
    powers: {
      startWorker(plan, descriptors) {
        if (plan.kind === kind && failing.isNow) {
          failing.count += 1;
          throw new Error("no process");
        }
        if (start === undefined) throw new Error("it starts before it is asked for");
        return start(plan, descriptors);
      },
    },
  });
  start = workers.startWorker;
  return { rig, failing };
}

test("a proxy that takes the place of one that died while it waited for a neighbour gets that neighbour too", async () => {
  const { rig, failing } = await startFailing("aggregator");
  // It is started later each time: the next one waits for more than two seconds.
  while (failing.count < 8) expect(await call(rig, "aggregator")).toContain("no process");
  failing.isNow = false;
  const waiting = call(rig, "aggregator");
  const before = await call(rig, "plain");
  expect(await call(rig, "plain")).toBe(before);
  process.kill(pidIn(before), "SIGKILL");
  expect(await waiting).toContain("the process that carried it was lost");
  await expect.poll(() => call(rig, "plain"), { interval: 10, timeout: 5_000 }).toMatch(/^proxy/);
  expect(await call(rig, "aggregator")).toMatch(/^aggregator /);
});

test("an egress that cannot be started for its first client is tried again, and that client gets its way to it", async () => {
  const { rig, failing } = await startFailing("egress");
  const waiting = call(rig, "egress");
  await expect.poll(() => failing.count, { timeout: 10_000 }).toBeGreaterThan(1);
  failing.isNow = false;
  expect(await waiting).toMatch(/^egress /);
});

test("a call that its proxy died of fails by name, is ended in the ledger, and the next one has another proxy", async () => {
  const fake = new FakeLedger({});
  const { rig } = await startTools({ powers: { startLedger: fake.startLedger } });
  const proxy = await call(rig, "plain");
  const aggregator = await call(rig, "aggregator");
  const hanging = call(rig, "hang");
  await expect.poll(() => rig.service.tools.cells.host.info.calls, { timeout: 10_000 }).toBe(2);
  const begun = () =>
    fake.rows("host", "security_decision_events").filter(({ type }) => type === "mcp.tool_call");
  await expect.poll(begun, { timeout: 10_000 }).toHaveLength(3);
  process.kill(pidIn(proxy), "SIGKILL");
  expect(await hanging).toContain(
    "upstream_failed: Cannot finish the call: the process that carried it was lost",
  );
  expect(await call(rig, "plain")).not.toBe(proxy);
  await expect
    .poll(() => fake.rows("host", "tool_calls").map(({ outcome }) => outcome))
    .toContain("interrupted");
  // The neighbour lives on, on another pair.
  expect(await call(rig, "aggregator")).toBe(aggregator);
  expect((await rig.client.get("/panics")).json<{ panics: { process: string }[] }>().panics[0]?.process).toBe(
    "proxy",
  );
});

test("a guest that opens its lane gets a proxy, a marker and a generation; another proxy another one", async () => {
  const lanes: [number, number][] = [];
  const lane = () => {
    const pair = native().socketPair("stream");
    lanes.push(pair);
    return pair;
  };
  const { rig, workers } = await startTools({ script: { opensTraffic: true }, faults: { lane } });
  workers.script("lane");
  const id = await createVm(rig);
  const logOf = () => readFileSync(join(rig.layout.vms, id, "logs", "owner.jsonl"), "utf8");
  const opened = () =>
    [...logOf().matchAll(/traffic (\{.*?\})"/g)].map(([, json]) =>
      JSON.parse((json ?? "").replaceAll('\\"', '"')),
    );
  await expect.poll(() => (existsLog(logOf) ? opened().length : 0), { timeout: 10_000 }).toBe(1);
  expect(workers.started).toEqual([`proxy ${id}`]);
  const first = await call(rig, "plain", { vm_id: id });
  process.kill(pidIn(first), "SIGKILL");
  const deadMs = performance.now();
  await expect.poll(() => opened().length, { interval: 10, timeout: 10_000 }).toBe(2);
  expect(performance.now() - deadMs).toBeLessThan(4_000);
  const [one, two] = opened();
  expect([one.generation, two.generation]).toEqual([1, 2]);
  expect(one.marker).toMatch(/^[0-9a-f]{64}$/);
  expect(two.marker).not.toBe(one.marker);
  expect(await call(rig, "plain", { vm_id: id })).not.toBe(first);
});

function existsLog(read: () => string): boolean {
  try {
    return read() !== "";
  } catch {
    return false;
  }
}

test("new rules hold in every proxy when the edit returns; one that hangs on them is replaced", async () => {
  const { rig, workers, rule } = await startTools();
  const before = await call(rig, "plain");
  await rule("no", { action: "block", match: 'mcp.tool_call.name == "plain"', priority: 20 });
  expect(await call(rig, "plain")).toContain("policy: Cannot call the tool: blocked by profiles.rules.no");
  expect(await call(rig, "other")).toBe(before);
  workers.script("hangs on rules");
  process.kill(pidIn(before), "SIGKILL");
  await expect.poll(() => call(rig, "other"), { timeout: 10_000 }).toMatch(/^proxy/);
  const hanging = await call(rig, "other");
  workers.script();
  await rig.client.delete("/rules/no");
  expect(await call(rig, "plain")).not.toBe(hanging);
});

test("a worker that cannot start is tried again, later each time, and the call says so", async () => {
  const { rig, workers } = await startTools();
  workers.script("proxy dies young");
  expect(await call(rig, "plain")).toContain("unavailable: Cannot reach the tools");
  workers.script();
  await expect.poll(() => call(rig, "plain"), { timeout: 10_000 }).toMatch(/^proxy/);
});

test("declared servers reach every proxy as they change, without their headers", async () => {
  const { rig } = await startTools();
  await call(rig, "plain");
  const put = { url: "https://tools.example/mcp", headers: { "X-Key": "not-registered-anywhere" } };
  const reply = await rig.client.put("/mcp/servers/shop", put);
  expect(reply.status, reply.bytes.toString()).toBe(200);
  await expect.poll(() => call(rig, "servers"), { timeout: 10_000 }).toBe("shop");
  const said = readFileSync(join(rig.layout.logs, "proxy.jsonl"), "utf8");
  expect(said).toContain("mcp.servers.shop");
  expect(said).not.toContain("not-registered-anywhere");
  await rig.client.put("/mcp/servers/shop", { ...put, enabled: false });
  await expect.poll(() => call(rig, "servers"), { timeout: 10_000 }).toBe("");
});

test("the service's end takes every worker along", async () => {
  const { rig } = await startTools();
  await call(rig, "egress");
  await call(rig, "builtin");
  expect(pidsWith("fake-tools.json").length).toBeGreaterThanOrEqual(4);
  await rig.service.close();
  expect(rig.log.filter(({ level }) => level === "error")).toEqual([]);
});
