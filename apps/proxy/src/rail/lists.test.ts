import type { ToolPin } from "@capsem/api";
import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { railRig } from "../testing/rail-rig.ts";
import { type ScriptedServer, said, tool } from "../testing/scripted-servers.ts";
import { type Message, MODERN, type TestClient } from "../testing/test-client.ts";

const never = () => new Promise<never>(() => undefined);
const toolsOf = ({ result }: Message) =>
  (result?.tools ?? []) as { readonly name: string; readonly description: string }[];
const namesOf = async (client: TestClient) =>
  toolsOf(await client.request("tools/list")).map(({ name }) => name);

test("a list is all that is declared, each under its server's name, and otherwise as its server wrote it", async () => {
  const raw =
    '{ "name":"re\\u0061d", "x-unknown": 1.0, "inputSchema":{"type":"object","b":1,"a":2},"icons":[{"src":"data:,"}] }';
  const rig = await railRig({
    servers: { a: { rawTools: [raw] }, b: { tools: [tool("read"), tool("write")] } },
    local: { tools: [tool("echo")] },
  });
  const client = rig.client();
  const answer = await client.request("tools/list");
  expect(toolsOf(answer).map(({ name }) => name)).toEqual(["a__read", "b__read", "b__write", "local__echo"]);
  expect(answer.result).not.toHaveProperty("_meta");
  expect(client.texts.at(-1)).toContain(raw.replace('"re\\u0061d"', '"a__read"'));
  expect((await client.call("b__read")).error).toBeUndefined();
  expect(rig.aggregator.requests.at(-1)).toMatchObject({
    server: "b",
    params: '{"name":"read","arguments":{}}',
  });
});

test("a server that is dead, or slow, is named and keeps nobody waiting; it is told of when it is there", async () => {
  let open: () => void = () => undefined;
  const slow: ScriptedServer = {
    tools: [tool("late")],
    look: () =>
      new Promise((resolve) => {
        open = resolve;
      }),
  };
  const dead: ScriptedServer = {
    look: async () => {
      throw new Failure("upstream_failed", "Cannot reach it: nothing listens there");
    },
  };
  const rig = await railRig({ servers: { dead, slow, well: { tools: [tool("read")] } } });
  const client = rig.client();
  await client.initialize();
  const started = performance.now();
  const answer = await client.request("tools/list");
  expect(performance.now() - started).toBeLessThan(5_000);
  expect(toolsOf(answer).map(({ name }) => name)).toEqual(["well__read"]);
  expect(answer.result?._meta).toEqual({
    "dev.capsem/unavailable": [
      { server: "dead", reason: "Cannot reach it: nothing listens there" },
      { server: "slow", reason: "it has not answered yet" },
    ],
  });
  expect(client.of("notifications/tools/list_changed")).toEqual([]);
  open();
  await expect.poll(() => client.of("notifications/tools/list_changed").length).toBe(1);
  expect(await namesOf(client)).toEqual(["slow__late", "well__read"]);
});

test("one bad tool, and one that is there twice, spoil nothing", async () => {
  const rawTools = [
    "[]",
    '{"description":"no name"}',
    '{"name":7}',
    '{"name":""}',
    '{"name":"twice","a":1}',
    '{"name":"twice","a":2}',
    '{"name":"keys","inputSchema":{"a":1,"a":2}}',
    `{"name":"large","description":"${"x".repeat(1_100_000)}"}`,
    `{"name":"${"n".repeat(300)}"}`,
    JSON.stringify(tool("good")),
  ];
  const rig = await railRig({ servers: { odd: { rawTools } } });
  const client = rig.client();
  expect(await namesOf(client)).toEqual(["odd__twice", "odd__good"]);
  expect(client.texts.at(-1)).toContain('"a":1');
  expect(rig.logs.filter((line) => line.includes("left out")).length).toBeGreaterThanOrEqual(7);
});

test("a name that clients would not take is shortened, the same each time, and calls its own tool", async () => {
  const long = `a${"_very".repeat(20)}`;
  const rig = await railRig({
    servers: { files: { tools: [tool(`${long}1`), tool(`${long}2`), tool("with space"), tool("naïve")] } },
  });
  const client = rig.client();
  const names = await namesOf(client);
  expect(new Set(names).size).toBe(4);
  for (const name of names) expect(name).toMatch(/^files__[A-Za-z0-9_./-]{1,57}$/);
  expect(await namesOf(rig.client())).toEqual(names);
  for (const [index, original] of [`${long}1`, `${long}2`, "with space", "naïve"].entries()) {
    await client.call(names[index] ?? "");
    expect(JSON.parse(rig.aggregator.requests.at(-1)?.params ?? "")).toMatchObject({ name: original });
    await client.call(`files__${original}`);
    expect(JSON.parse(rig.aggregator.requests.at(-1)?.params ?? "")).toMatchObject({ name: original });
  }
});

test("a long list comes in pages, whose cursors are of that list alone", async () => {
  const tools = Array.from({ length: 2_300 }, (_, index) => tool(`t${index}`));
  const rig = await railRig({ servers: { many: { tools } } });
  const client = rig.client();
  const all: string[] = [];
  let cursor: unknown;
  let pages = 0;
  do {
    const answer = await client.request("tools/list", cursor === undefined ? {} : { cursor });
    all.push(...toolsOf(answer).map(({ name }) => name));
    cursor = answer.result?.nextCursor;
    pages += 1;
  } while (cursor !== undefined);
  expect(pages).toBe(3);
  expect(all).toEqual(tools.map(({ name }) => `many__${name}`));
  const first = await client.request("tools/list");
  for (const wrong of ["x", "", 7, "0.1", `${first.result?.nextCursor}0`, "abc.1000"]) {
    expect((await client.request("tools/list", { cursor: wrong })).error?.code, String(wrong)).toBe(-32_602);
  }
  const server = rig.aggregator.servers.get("many");
  if (server !== undefined) server.tools = tools.slice(0, 2_000);
  await rig.aggregator.tell("server.changed", { server: "many", what: "tools" });
  const stale = () => client.request("tools/list", { cursor: first.result?.nextCursor });
  await expect.poll(async () => (await stale()).error?.code).toBe(-32_602);
});

const pinOf = (state: ToolPin["state"], approved: string | null): ToolPin => ({
  ...{
    server: "files",
    tool: "read",
    state,
    approved_hash: approved === null ? null : "0".repeat(64),
    approved,
  },
});

test("a changed tool is listed as it was approved, and its call is not pinned: it asks", async () => {
  const rig = await railRig({ servers: { files: { tools: [tool("read", { description: "evil" })] } } });
  rig.service.pins.set("files read", pinOf("changed", JSON.stringify(tool("read", { description: "good" }))));
  const client = rig.client();
  const [listed] = toolsOf(await client.request("tools/list"));
  expect(listed).toMatchObject({ name: "files__read", description: "good" });
  expect(client.texts.join()).not.toContain("evil");
  const call = client.call("files__read");
  await expect.poll(() => rig.service.asks.length).toBe(1);
  const asked = rig.service.asks[0]?.ask;
  expect(asked?.decision.rule_id).toBe("default.changed_tool");
  expect(asked?.event).toMatchObject({ fields: { "mcp.server.pinned": false } });
  rig.service.asks[0]?.resolve("approved");
  expect((await call).error).toBeUndefined();
  await rig.settled();
  expect(rig.service.calls[0]?.call.is_pinned).toBe(false);
});

test("a new tool of a known server is not listed, and its call asks; approved, it is told of", async () => {
  const rig = await railRig({ servers: { files: { tools: [tool("read"), tool("old")] } } });
  rig.service.pins.set("files read", pinOf("new", null));
  const client = rig.client();
  await client.initialize();
  expect(await namesOf(client)).toEqual(["files__old"]);
  void client.call("files__read");
  await expect.poll(() => rig.service.asks.length).toBe(1);
  const report = rig.service.reports.find(({ server }) => server === "files");
  const pins = (report?.tools ?? []).map(({ name, hash }) => ({
    ...{ server: "files", tool: name, state: "pinned" as const, approved_hash: hash, approved: null },
  }));
  await rig.declare({ files: { tools: [tool("read"), tool("old")] } }, pins);
  await expect.poll(() => client.of("notifications/tools/list_changed").length).toBeGreaterThan(0);
  expect(await namesOf(client)).toEqual(["files__read", "files__old"]);
  expect((await client.call("files__read")).error).toBeUndefined();
});

test("a definition that is approved by its hash is not pinned once the server says another", async () => {
  const server: ScriptedServer = { tools: [tool("read")] };
  const rig = await railRig({ servers: { files: server } });
  const client = rig.client();
  expect((await client.call("files__read")).error).toBeUndefined();
  const [first] = rig.service.reports;
  const hash = first?.tools[0]?.hash ?? "";
  // The service still has the older word of it.
  rig.service.pins.set("files read", {
    ...{ server: "files", tool: "read", state: "pinned", approved_hash: hash, approved: null },
  });
  server.tools = [tool("read", { description: "other" })];
  await rig.aggregator.tell("server.changed", { server: "files", what: "tools" });
  await expect.poll(() => rig.service.reports.length).toBe(2);
  void client.call("files__read");
  await expect.poll(() => rig.service.asks.length).toBe(1);
});

test("what a server says of its tools is reported whole, with a hash that other instructions change", async () => {
  const rig = await railRig({
    servers: { files: { tools: [tool("read", { title: "Read" })], instructions: "be nice" } },
  });
  await rig.client().request("tools/list");
  const report = rig.service.reports.find(({ server }) => server === "files");
  expect(report?.info).toMatchObject({ name: "the files server", protocol: "2025-11-25", resources: 0 });
  expect(report?.tools).toMatchObject([{ name: "read", title: "Read", description: "does read" }]);
  expect(report?.tools[0]?.canonical).toContain('"instructions": "be nice"');
  expect(report?.tools[0]?.hash).toMatch(/^[0-9a-f]{64}$/);
});

test("a change of a server's lists is told to those who have them, once, and not to those who have none", async () => {
  const server: ScriptedServer = { tools: [tool("read")], resources: [{ uri: "a://1", name: "1" }] };
  const rig = await railRig({ servers: { files: server } });
  const [client, silent] = [rig.client(), rig.client()];
  await client.initialize();
  await namesOf(client);
  server.tools = [tool("read"), tool("write")];
  const started = performance.now();
  for (let count = 0; count < 3; count += 1) {
    await rig.aggregator.tell("server.changed", { server: "files", what: "tools" });
  }
  await expect.poll(() => client.of("notifications/tools/list_changed").length).toBe(1);
  expect(performance.now() - started).toBeLessThan(1_000);
  expect(client.of("notifications/resources/list_changed")).toEqual([]);
  expect(await namesOf(client)).toEqual(["files__read", "files__write"]);
  // Said to have changed, and found to be the same.
  await rig.aggregator.tell("server.changed", { server: "files", what: "tools" });
  await expect.poll(() => rig.service.reports.length).toBeGreaterThan(2);
  expect(client.of("notifications/tools/list_changed")).toHaveLength(1);
  expect(silent.texts).toEqual([]);
});

test("a server that is declared anew replaces the old one; one that is gone is no longer there", async () => {
  const rig = await railRig({ servers: { a: { tools: [tool("one")] }, b: { tools: [tool("two")] } } });
  const client = rig.client();
  expect(await namesOf(client)).toEqual(["a__one", "b__two"]);
  const second = rig.service.reports.find(({ server }) => server === "b");
  const hash = second?.tools[0]?.hash ?? "";
  const pin = { server: "b", tool: "two", state: "pinned" as const, approved_hash: hash, approved: null };
  await rig.declare({ b: { tools: [tool("three")] } }, [pin]);
  expect(rig.aggregator.sets.at(-1)?.servers.map(({ name }) => name)).toEqual(["b"]);
  // The declaration of b is the same: what is known of it holds until it says otherwise.
  expect(await namesOf(client)).toEqual(["b__two"]);
  expect((await client.call("a__one")).error?.code).toBe(-32_602);
});

test("a client of the newer protocol has cache hints and a word that says that the list is whole", async () => {
  const rig = await railRig({ servers: { files: { tools: [tool("read")] } } });
  const client = rig.client();
  const { result } = await client.request("tools/list", { _meta: MODERN });
  expect(result).toMatchObject({ resultType: "complete", ttlMs: 0, cacheScope: "private" });
  expect((await client.request("resources/list", { _meta: MODERN })).result).toMatchObject({ resources: [] });
});

test("a look from the host reports, refreshes where it is told to, and fails as the server does", async () => {
  const server: ScriptedServer = { tools: [tool("read")] };
  const rig = await railRig({ servers: { files: server } });
  const look = (refresh: boolean, name = "files") =>
    rig.service.call("server.look", { server: name, refresh });
  expect(await look(false)).toEqual({ tools: 1 });
  server.tools = [tool("read"), tool("write")];
  expect(await look(false)).toEqual({ tools: 1 });
  expect(await look(true)).toEqual({ tools: 2 });
  expect(rig.service.reports).toHaveLength(2);
  await expect(look(true, "none")).rejects.toMatchObject({ kind: "not_found" });
  server.look = async () => {
    throw new Failure("upstream_failed", "Cannot reach it");
  };
  await expect(look(true)).rejects.toMatchObject({ kind: "upstream_failed" });
});

test("calls go on at one server while another is looked at, and one that fails is not looked at by each call", async () => {
  const rig = await railRig({
    servers: { slow: { look: never }, well: { tools: [tool("read")], serve: async () => said("ok") } },
  });
  const client = rig.client();
  void client.begin("tools/call", { name: "slow__x" });
  expect((await client.call("well__read")).error).toBeUndefined();
  const dead = await railRig({
    servers: {
      dead: {
        look: async () => {
          throw new Failure("upstream_failed", "Cannot reach it");
        },
      },
    },
  });
  const other = dead.client();
  for (let count = 0; count < 5; count += 1) {
    expect((await other.call("dead__x")).error).toMatchObject({ code: -32_603, message: "Cannot reach it" });
  }
  expect(dead.aggregator.looks).toBe(1);
});

test("a VM that is renamed is judged under its new name at once, in lists too", async () => {
  const rules = `[profiles.rules.named]\naction = "block"\nmatch = 'vm.name == "other"'\n`;
  const rig = await railRig({ servers: { files: { tools: [tool("read")] } }, rules });
  const client = rig.client();
  expect(await namesOf(client)).toEqual(["files__read"]);
  await rig.service.call("vm.set", { vm: { id: "vm_abcdefghij234567", name: "other", image: null } });
  expect(await namesOf(client)).toEqual([]);
  expect((await client.call("files__read")).error?.data?.rule_id).toBe("profiles.rules.named");
});
