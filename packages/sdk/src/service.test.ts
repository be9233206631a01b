import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { startGateway } from "../../../apps/gateway/src/gateway.ts";
import { nodePowers } from "../../../apps/gateway/src/powers-node.ts";
import { ensureToken } from "../../../apps/gateway/src/token-file.ts";
import { startRig } from "../../../apps/service/src/testing/rig.ts";
import type { Client } from "./client.ts";
import { asyncDispose } from "./dispose.ts";
import { type ClientWay, clientOf, WAYS } from "./testing/ways.ts";

// Owners are processes, on machines that are busy with other ones.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

/** The real service with fake owners, and the real gateway before it. */
let address: ClientWay;
const closers: (() => Promise<void>)[] = [];
beforeAll(async () => {
  const rig = await startRig();
  const run = dirname(rig.layout.socket);
  const home = dirname(run);
  ensureToken(run);
  const gateway = await startGateway(nodePowers(home, 0), () => undefined);
  closers.push(() => gateway.close(), rig.close);
  address = { home, url: `http://127.0.0.1:${gateway.port}`, tokenFile: join(run, "gateway.token") };
});
afterAll(async () => {
  for (const close of closers) await close();
});

describe.each(WAYS)("over the %s", (way) => {
  let client: Client;
  beforeAll(() => {
    client = clientOf(way, address);
  });
  afterAll(() => client.close());

  test("a VM lives in its block: work, files, events and its end", async () => {
    const events = client.events();
    expect(await events.next()).toMatchObject({ value: { type: "hello" } });
    const vm = await client.create({ memory_gib: 0.5 });
    const seen = await events.next();
    expect(seen.value).toMatchObject({ type: "vm", vm: { id: vm.id } });
    expect(await vm.exec("echo out; exit 3")).toMatchObject({ exit_code: 3, stdout: { data: "out\n" } });
    await vm.fs.mkdir("a");
    await vm.fs.writeFile("a/x", "text");
    expect([await vm.fs.readdir("a"), await vm.fs.readFile("a/x", "utf8")]).toEqual([["x"], "text"]);
    await expect(vm.fs.readFile("a/none")).rejects.toMatchObject({ code: "ENOENT", kind: "file_not_found" });
    await vm[asyncDispose]();
    expect((await client.vms.list()).map(({ id }) => id)).not.toContain(vm.id);
    for await (const event of events) if (event.type === "vm_gone" && event.vm_id === vm.id) break;
    // Who deleted it first makes no difference to the block's end.
    await vm[asyncDispose]();
  });

  test("a job is left, attached again where it was left, and replayed from its beginning", async () => {
    const held = await client.hold();
    const { vm } = held;
    const job = vm.stream({ command: "echo one; read line; echo two; exit 7", stdin: true });
    const id = await job.id;
    for await (const { line } of job.lines()) {
      expect(line).toBe("one");
      break;
    }
    job.detach();
    const again = vm.attach(id, job.offset);
    await again.write("go\n");
    expect(await again.output()).toMatchObject({ stdout: "two\n", exit_code: 7 });
    expect(await vm.attach(id).output()).toMatchObject({ stdout: "one\ntwo\n", exit_code: 7 });
    await held[asyncDispose]();
    await expect.poll(async () => (await client.vms.list()).length, { timeout: 20_000 }).toBe(0);
  });

  test("the service's own words come through", async () => {
    expect((await client.stats()).requests.total).toBeGreaterThan(0);
    expect((await client.panics({ since: "1h" })).truncated).toBe(false);
    expect((await client.triage({ since: "1h", limit: 5 })).truncated).toBe(false);
    expect(Array.isArray((await client.hostLogs("service", { tail: 5 })).lines)).toBe(true);
    await expect(client.vm("vm_aaaaaaaaaaaaaaaa").info()).rejects.toMatchObject({ kind: "vm_not_found" });
    await expect(client.vm("vm_aaaaaaaaaaaaaaaa").stream("true")).rejects.toMatchObject({
      kind: "vm_not_found",
    });
    await expect(client.vms.create({ cpus: 64 })).rejects.toMatchObject({ kind: "invalid_input" });
  });
});
