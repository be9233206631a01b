import type { ToolPin } from "@capsem/api";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { PROXY_LIMITS } from "../limits.ts";
import { type RailRig, railRig } from "../testing/rail-rig.ts";
import { type ScriptedServer, said, tool } from "../testing/scripted-servers.ts";
import type { TestClient } from "../testing/test-client.ts";

const read = (description: string) => tool("read", { description });
const newServer = (...described: string[]): ScriptedServer => ({
  tools: described.map(read),
  serve: async () => said("ok"),
});

const hashOf = (rig: RailRig, at = -1) =>
  rig.service.reports.filter(({ server }) => server === "files").at(at)?.tools[0]?.hash ?? "";

/** What the service says of the tool from now on, told to the proxy as well. */
async function pin(rig: RailRig, server: ScriptedServer, known: Omit<ToolPin, "server" | "tool">) {
  const told = { server: "files", tool: "read", ...known };
  rig.service.pins.set("files read", told);
  await rig.declare({ files: server }, [told]);
}

/** Another proxy has looked at the server, and a person approved what it says. */
async function approveNext(rig: RailRig, server: ScriptedServer, text: string): Promise<void> {
  const looked = await railRig({ servers: { files: newServer(text) } });
  await looked.service.call("server.look", { server: "files", refresh: true });
  await pin(rig, server, { state: "pinned", approved_hash: hashOf(looked), approved: null });
}

async function descriptionsOf(client: TestClient): Promise<string[]> {
  const { result } = await client.request("tools/list");
  return ((result?.tools ?? []) as { description: string }[]).map(({ description }) => description);
}

test("a change that was approved is called and listed at once, whatever the aggregator remembers", async () => {
  const server = newServer("first");
  const rig = await railRig({ servers: { files: server } });
  const client = rig.client();
  expect(await descriptionsOf(client)).toEqual(["first"]);
  server.remembered = server.tools ?? [];
  server.tools = [read("second")];
  await approveNext(rig, server, "second");
  expect((await client.call("files__read")).error).toBeUndefined();
  expect(await descriptionsOf(client)).toEqual(["second"]);
  expect(rig.service.asks).toEqual([]);
});

test("a list that comes first after an approval has what was approved", async () => {
  const server = newServer("first");
  const rig = await railRig({ servers: { files: server } });
  const client = rig.client();
  await descriptionsOf(client);
  server.tools = [read("second")];
  await approveNext(rig, server, "second");
  expect(await descriptionsOf(client)).toEqual(["second"]);
});

test("a change that another proxy saw is seen here: what was approved is called no more without asking", async () => {
  const server = newServer("first");
  const rig = await railRig({ servers: { files: server } });
  const client = rig.client();
  await client.call("files__read");
  const approved_hash = hashOf(rig);
  server.tools = [read("second")];
  await pin(rig, server, { state: "changed", approved_hash, approved: JSON.stringify(read("first")) });
  void client.call("files__read");
  await expect.poll(() => rig.service.asks.length).toBe(1);
  expect(rig.service.reports.at(-1)?.tools[0]?.description).toBe("second");
});

test("lists that are old are read from the server, by calls as well as by lists", async () => {
  let nowMs = 0;
  const server = newServer("first");
  const rig = await railRig({ servers: { files: server }, monotonicMs: () => nowMs });
  const client = rig.client();
  await client.call("files__read");
  server.remembered = server.tools ?? [];
  server.tools = [read("second")];
  nowMs += PROXY_LIMITS.catalogAgeMsMax;
  await client.call("files__read");
  expect(rig.service.reports.filter((report) => report.server === "files")).toHaveLength(1);
  nowMs += 1;
  await client.call("files__read");
  const described = () => rig.service.reports.at(-1)?.tools[0]?.description;
  await expect.poll(described).toBe("second");
});

test("a report over which there is a newer one is made anew, of what the server says then", async () => {
  const server = newServer("second");
  server.remembered = [read("first")];
  const rig = await railRig();
  const ofFiles = () => rig.service.reports.filter((report) => report.server === "files");
  rig.service.onReport = ({ server: name }) => {
    if (name === "files" && ofFiles().length === 1) throw new Failure("outdated", "another look was later");
  };
  await rig.declare({ files: server });
  expect(await descriptionsOf(rig.client())).toEqual(["second"]);
  expect(ofFiles().map(({ tools }) => tools[0]?.description)).toEqual(["first", "second"]);
});

test("servers that never say what was approved are asked for it once, and their tools ask", async () => {
  const server = newServer("first");
  const rig = await railRig({ servers: { files: server } });
  const client = rig.client();
  await client.call("files__read");
  await pin(rig, server, { state: "pinned", approved_hash: "0".repeat(64), approved: null });
  const looks = rig.aggregator.looks;
  for (let count = 1; count <= 5; count += 1) {
    void client.call("files__read");
    await expect.poll(() => rig.service.asks.length).toBe(count);
  }
  expect(rig.aggregator.looks - looks).toBe(1);
});

test("a server that does not answer keeps nobody from what is known of it", async () => {
  const server = newServer("first");
  const rig = await railRig({ servers: { files: server } });
  const client = rig.client();
  await client.call("files__read");
  server.look = () => new Promise<never>(() => undefined);
  await pin(rig, server, { state: "pinned", approved_hash: "0".repeat(64), approved: null });
  void client.call("files__read");
  await expect.poll(() => rig.service.asks.length, { timeout: 5_000 }).toBe(1);
});

test("a look for what was approved that fails is made again a moment later", async () => {
  let nowMs = 0;
  const server = newServer("first");
  const rig = await railRig({ servers: { files: server }, monotonicMs: () => nowMs });
  const client = rig.client();
  await client.call("files__read");
  server.tools = [read("second")];
  server.look = async () => {
    throw new Failure("upstream_failed", "Cannot reach it");
  };
  await approveNext(rig, server, "second");
  void client.call("files__read");
  await expect.poll(() => rig.service.asks.length).toBe(1);
  server.look = async () => undefined;
  nowMs += PROXY_LIMITS.catalogRenewMsMin;
  expect((await client.call("files__read")).error).toBeUndefined();
  expect(rig.service.asks).toHaveLength(1);
});
