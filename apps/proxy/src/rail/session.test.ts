import { expect, test } from "vitest";
import { railRig } from "../testing/rail-rig.ts";
import { type ScriptedServer, tool } from "../testing/scripted-servers.ts";
import { MODERN } from "../testing/test-client.ts";

const server: ScriptedServer = {
  tools: [tool("read")],
  resources: [
    { uri: "demo://a", name: "a" },
    { uri: "demo://both", name: "b" },
  ],
  serve: async ({ method, params }) => {
    if (method === "resources/read") return { result: { contents: [{ uri: "demo://a", text: params }] } };
    return method === "tools/call"
      ? { result: { content: [{ type: "resource_link", uri: "demo://linked", name: "l" }] } }
      : { result: {} };
  },
};

test.each([
  ["2025-11-25", "2025-11-25"],
  ["2025-06-18", "2025-06-18"],
  ["2025-03-26", "2025-03-26"],
  ["2024-11-05", "2024-11-05"],
  ["1999-01-01", "2025-11-25"],
])("a client that asks for %s gets %s", async (asked, given) => {
  const rig = await railRig();
  const { result } = await rig.client().initialize({}, asked);
  expect(result).toMatchObject({
    protocolVersion: given,
    serverInfo: { name: "capsem", version: "1.2.3" },
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true }, logging: {} },
  });
});

test("a client of the newer protocol discovers, and one of an unknown one is told what there is", async () => {
  const rig = await railRig();
  const client = rig.client();
  const { result } = await client.request("server/discover", { _meta: MODERN });
  expect(result).toMatchObject({ resultType: "complete", supportedVersions: ["2026-07-28"] });
  const _meta = { "io.modelcontextprotocol/protocolVersion": "2030-01-01" };
  expect((await client.request("server/discover", { _meta })).error).toMatchObject({
    code: -32_022,
    data: { requested: "2030-01-01", supported: expect.arrayContaining(["2026-07-28", "2025-11-25"]) },
  });
  // Tried before a handshake, as some clients do: they go on with one.
  expect((await client.request("server/discover")).error?.code).toBe(-32_601);
  expect((await client.initialize()).error).toBeUndefined();
});

test.each<[string, unknown, number]>([
  ["no/such", {}, -32_601],
  ["tools/call", {}, -32_602],
  ["tools/call", { name: 7 }, -32_602],
  ["tools/call", { name: "s__read", arguments: [] }, -32_602],
  ["resources/read", {}, -32_602],
  ["resources/read", { uri: "capsem://none/x" }, -32_602],
  ["resources/read", { uri: "unknown://x" }, -32_602],
  ["prompts/get", { name: "s__none" }, -32_602],
  ["completion/complete", { ref: { type: "ref/odd" }, argument: { name: "a", value: "" } }, -32_602],
  ["logging/setLevel", { level: "loud" }, -32_602],
  ["subscriptions/listen", { _meta: MODERN }, -32_602],
  ["initialize", { _meta: MODERN }, -32_601],
  ["ping", { _meta: MODERN }, -32_601],
])("%s with %j is answered with %i", async (method, params, code) => {
  const rig = await railRig({ servers: { s: server } });
  expect((await rig.client().request(method, params)).error?.code).toBe(code);
});

test.each([
  ["{", -32_700],
  ["[]", -32_600],
  ['{"jsonrpc":"1.0","id":1,"method":"ping"}', -32_600],
  ['{"jsonrpc":"2.0","id":null,"method":"ping"}', -32_600],
])("%s is answered with %i, and the client goes on", async (text, code) => {
  const rig = await railRig();
  const client = rig.client();
  await client.receive(text);
  expect(client.messages.at(-1)?.error?.code).toBe(code);
  expect((await client.request("ping")).result).toEqual({});
});

test("before rules and servers have come a first request waits for them", async () => {
  const { RailRig } = await import("../testing/rail-rig.ts");
  const rig = new RailRig({});
  const client = rig.client();
  const answer = client.request("ping");
  await rig.credit(10, 1e6);
  await rig.rules("");
  expect(client.texts).toEqual([]);
  await rig.declare({});
  expect((await answer).result).toEqual({});
  await rig.proxy.close();
});

test("rules that do not come to the digest of the service are not put into force", async () => {
  const rig = await railRig({ servers: { s: server } });
  const set = (digest: string, user = "") => rig.service.call("policy.set", { user, corp: "", digest });
  await expect(set("0".repeat(64))).rejects.toMatchObject({ kind: "policy_invalid" });
  await expect(set("0".repeat(64), "[profiles.rules.x")).rejects.toMatchObject({ kind: "policy_invalid" });
  expect((await rig.client().call("s__read")).error).toBeUndefined();
});

test("a subscribed resource that changes is told of, under the name that was given, until nobody wants it", async () => {
  const rig = await railRig({ servers: { s: server } });
  const [one, other] = [rig.client(), rig.client()];
  await one.initialize();
  await one.request("resources/subscribe", { uri: "capsem://s/demo://a" });
  await one.request("resources/list");
  await other.request("resources/subscribe", { uri: "demo://a" });
  const change = () =>
    rig.aggregator.tell("server.changed", { server: "s", what: "resource", uri: "demo://a" });
  await change();
  await expect.poll(() => one.of("notifications/resources/updated").length).toBe(1);
  expect(one.of("notifications/resources/updated")[0]?.params).toEqual({ uri: "capsem://s/demo://a" });
  expect(other.of("notifications/resources/updated")[0]?.params).toEqual({ uri: "demo://a" });
  const upstream = () => rig.aggregator.requests.map(({ method }) => method);
  await one.request("resources/unsubscribe", { uri: "capsem://s/demo://a" });
  expect(upstream()).not.toContain("resources/unsubscribe");
  other.leave();
  await expect.poll(upstream).toContain("resources/unsubscribe");
  await change();
  expect(one.of("notifications/resources/updated")).toHaveLength(1);
});

test("subscriptions are made anew at a new process, without anybody asking for it", async () => {
  const rig = await railRig({ servers: { s: server } });
  const client = rig.client();
  await client.request("resources/subscribe", { uri: "capsem://s/demo://a" });
  rig.aggregator.kill();
  await expect
    .poll(() => rig.aggregator.requests.filter(({ method }) => method === "resources/subscribe").length)
    .toBe(2);
});

test("a listener hears what it asked for, each with the id of its request, until it cancels", async () => {
  const rig = await railRig({ servers: { s: server } });
  const client = rig.client();
  await client.request("tools/list", { _meta: MODERN });
  const notifications = {
    toolsListChanged: true,
    resourceSubscriptions: ["capsem://s/demo://a", "gone://x"],
  };
  const listening = client.begin("subscriptions/listen", { _meta: MODERN, notifications }, "listen-1");
  await expect.poll(() => client.texts.length).toBe(2);
  const subscription = { "io.modelcontextprotocol/subscriptionId": "listen-1" };
  expect(client.of("notifications/subscriptions/acknowledged")[0]?.params).toEqual({
    _meta: subscription,
    notifications: { toolsListChanged: true, resourceSubscriptions: ["capsem://s/demo://a"] },
  });
  server.tools = [tool("read"), tool("more")];
  await rig.aggregator.tell("server.changed", { server: "s", what: "tools" });
  await rig.aggregator.tell("server.changed", { server: "s", what: "resource", uri: "demo://a" });
  await expect.poll(() => client.texts.length).toBe(4);
  expect(client.of("notifications/tools/list_changed")[0]?.params).toEqual({ _meta: subscription });
  expect(client.of("notifications/resources/updated")[0]?.params).toEqual({
    ...{ _meta: subscription, uri: "capsem://s/demo://a" },
  });
  expect(client.abouts.slice(1)).toEqual(['"listen-1"', '"listen-1"', '"listen-1"']);
  await client.notify("notifications/cancelled", { requestId: "listen-1" });
  await listening;
  await expect.poll(() => rig.aggregator.requests.at(-1)?.method).toBe("resources/unsubscribe");
  expect(client.texts).toHaveLength(4);
});

test("a resource of a result may be read by the name that the result has, while one server alone has given it", async () => {
  const rig = await railRig({ servers: { s: server, t: server } });
  const client = rig.client();
  const read = (uri: string) => client.request("resources/read", { uri });
  expect((await read("demo://linked")).error?.code).toBe(-32_602);
  await client.call("s__read");
  expect((await read("demo://linked")).result).toMatchObject({
    contents: [{ text: '{"uri":"demo://linked"}' }],
  });
  expect(rig.aggregator.requests.at(-1)?.server).toBe("s");
  await client.call("t__read");
  expect((await read("demo://linked")).error?.code).toBe(-32_602);
  expect((await read("capsem://t/demo://linked")).error).toBeUndefined();
  // Both list it.
  await client.request("resources/list");
  expect((await read("demo://both")).error?.code).toBe(-32_602);
});

test("logs of a server come from the level on that a client wants", async () => {
  const rig = await railRig({ servers: { s: server } });
  const client = rig.client();
  await client.initialize();
  const log = (level: string) =>
    rig.aggregator.tell("server.log", { server: "s", params: JSON.stringify({ level, data: level }) });
  await client.call("s__read");
  await log("debug");
  await client.request("logging/setLevel", { level: "warning" });
  await log("info");
  await log("error");
  await expect
    .poll(() => client.of("notifications/message").map(({ params }) => params?.data))
    .toEqual(["debug", "error"]);
});

test("a name of ours that serves nothing is recorded", async () => {
  const rig = await railRig();
  rig.proxy.rail.reserved({
    ...{
      host: "other.capsem.internal",
      port: 80,
      method: "GET",
      path: "/x",
      processName: "curl",
      status: 403,
    },
  });
  await rig.settled();
  expect(rig.service.facts).toMatchObject([
    {
      kind: "net",
      outcome: "blocked",
      net: { kind: "capsem.internal.reserved", host: "other.capsem.internal" },
    },
  ]);
});

test("a thousand clients that come, ask and leave are gone", async () => {
  const rig = await railRig({
    servers: { s: { tools: [tool("read")], serve: () => new Promise(() => undefined) } },
  });
  const first = rig.client();
  await first.request("tools/list");
  for (let count = 0; count < 1_000; count += 1) {
    const client = rig.client();
    const begun = client.begin("tools/call", { name: "s__read" });
    client.leave();
    await begun;
  }
  expect(rig.proxy.rail.clientCount).toBe(1);
  await rig.settled();
  await expect.poll(() => rig.aggregator.open).toBe(0);
  expect(rig.service.calls).toHaveLength(1_000);
  expect(new Set(rig.service.calls.map(({ outcome }) => outcome))).toEqual(new Set(["cancelled"]));
});
