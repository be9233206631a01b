import { expect, test, vi } from "vitest";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { type CallOptions, oneServer } from "../testing/one-server.ts";
import { sdkServer } from "../testing/sdk-server.ts";

const tool = (name: string, args: Record<string, unknown> = {}, meta?: unknown) => ({
  name,
  arguments: args,
  ...(meta === undefined ? {} : { _meta: meta }),
});
const textIn = (outcome: { text: string }) => JSON.parse(outcome.text).content[0].text as string;

test("what a server speaks is found out, and remembered", async () => {
  const table: [Parameters<typeof sdkServer>[0], object, string, string][] = [
    ["both", {}, "modern", "2026-07-28"],
    ["modern", {}, "modern", "2026-07-28"],
    ["legacy", {}, "legacy", "2025-11-25"],
    ["both", { protocol: "legacy" }, "legacy", "2025-11-25"],
    ["both", { transport: "http" }, "modern", "2026-07-28"],
  ];
  for (const [eras, declaration, era, protocol] of table) {
    const server = await sdkServer(eras);
    const one = oneServer(server.url, declaration);
    const outcome = await one.call({ params: tool("echo", { message: "hello" }) }).outcome;
    const catalog = await one.upstream.catalog(false, new AbortController().signal);
    expect([eras, textIn(outcome), catalog.era, catalog.protocol]).toEqual([eras, "hello", era, protocol]);
    expect([catalog.name, catalog.version, catalog.instructions]).toEqual(["sdk", "2.0.0", "Use it well"]);
  }
});

test("a server that is declared as modern and is not fails, and says why", async () => {
  const server = await sdkServer("legacy");
  const one = oneServer(server.url, { protocol: "modern" });
  await expect(one.call().outcome).rejects.toMatchObject({ kind: "upstream_failed" });
});

test.each(["legacy", "modern"] as const)(
  "a catalogue has all pages, and is read anew when a list changed (%s)",
  async (era) => {
    const server = await sdkServer("both");
    const one = oneServer(server.url, { protocol: era });
    const { signal } = new AbortController();
    const first = await one.upstream.catalog(false, signal);
    expect(first.tools.map((definition) => JSON.parse(definition).name)).toHaveLength(8);
    expect([first.resources.length, first.templates.length, first.prompts.length]).toEqual([1, 0, 0]);
    const lists = () => server.messages.filter(({ method }) => method === "tools/list").length;
    expect(lists()).toBe(3);
    await one.upstream.catalog(false, signal);
    expect(lists()).toBe(3);
    const streams = () =>
      server.requests.filter(({ method, headers }) =>
        era === "legacy" ? method === "GET" : headers["mcp-method"] === "subscriptions/listen",
      ).length;
    await vi.waitFor(() => expect(streams()).toBe(1));
    await new Promise((done) => setTimeout(done, 50));
    if (era === "modern") server.modern.notify.toolsChanged();
    else for (const session of server.sessions.values()) await session.sendToolListChanged();
    await vi.waitFor(() => expect(one.heard.changed).toEqual([{ what: "tools", uri: undefined }]));
    await one.upstream.catalog(false, signal);
    expect(lists()).toBe(6);
  },
);

test.each(["legacy", "modern"] as const)(
  "a resource that is subscribed to says that it changed (%s)",
  async (era) => {
    const server = await sdkServer("both");
    const one = oneServer(server.url, { protocol: era });
    await one.call({ params: tool("echo") }).outcome;
    const subscribe = (method: string) => one.call({ method, params: { uri: "test://a" } }).outcome;
    expect(JSON.parse((await subscribe("resources/subscribe")).text)).toMatchObject({});
    await vi.waitFor(() =>
      expect(
        server.requests.filter(({ method }) => method === "GET").length + (era === "modern" ? 1 : 0),
      ).toBeGreaterThan(0),
    );
    await new Promise((done) => setTimeout(done, 50));
    const update = async () => {
      if (era === "modern") server.modern.notify.resourceUpdated("test://a");
      else
        for (const session of server.sessions.values())
          await session.sendResourceUpdated({ uri: "test://a" });
    };
    await update();
    await vi.waitFor(() => expect(one.heard.changed).toEqual([{ what: "resource", uri: "test://a" }]));
    await subscribe("resources/unsubscribe");
    if (era === "modern") await update();
    await new Promise((done) => setTimeout(done, 100));
    expect(one.heard.changed).toHaveLength(1);
  },
);

test.each(["legacy", "modern"] as const)(
  "progress comes before the answer, by the client's own token (%s)",
  async (era) => {
    const server = await sdkServer("both");
    const one = oneServer(server.url, { protocol: era });
    const calls = ["a", 7, "b"].map((progressToken) =>
      one.call({ params: tool("progress", {}, { progressToken }) }),
    );
    const silent = one.call({ params: tool("progress") });
    await Promise.all([...calls, silent].map(({ outcome }) => outcome));
    const heard = calls.map(({ notifications }) =>
      notifications.map((each) => {
        const { progressToken, progress } = JSON.parse(each).params;
        return [progressToken, progress];
      }),
    );
    expect(heard).toEqual(
      ["a", 7, "b"].map((token) => [
        [token, 1],
        [token, 2],
        [token, 3],
      ]),
    );
    expect(silent.notifications).toEqual([]);
  },
);

test.each(["legacy", "modern"] as const)("a cancelled call is cancelled at the server (%s)", async (era) => {
  const server = await sdkServer("both");
  const one = oneServer(server.url, { protocol: era });
  await one.call({ params: tool("echo") }).outcome;
  const callers = ["x", "y"].map((name) => {
    const caller = new AbortController();
    return { caller, call: one.call({ params: tool("wait", { name }), signal: caller.signal }) };
  });
  await vi.waitFor(() => expect(server.metas).toHaveLength(3));
  callers[1]?.caller.abort();
  await vi.waitFor(() => expect(server.cancelled).toEqual(["y"]));
  callers[0]?.caller.abort();
  await vi.waitFor(() => expect(server.cancelled).toEqual(["y", "x"]));
  await vi.waitFor(() => expect([one.upstream.load.calls, one.http.openCount <= 1]).toEqual([0, true]));
});

test.each(["legacy", "modern"] as const)(
  "a call that is cancelled before it is sent is not sent, and holds no place (%s)",
  async (era) => {
    const server = await sdkServer("both");
    const one = oneServer(server.url, { protocol: era });
    await one.call({ params: tool("echo") }).outcome;
    const before = server.messages.length;
    for (let n = 0; n < UPSTREAM_LIMITS.callsMax; n += 1) {
      const caller = new AbortController();
      const { outcome } = one.call({ params: tool("wait"), signal: caller.signal });
      caller.abort();
      await expect(outcome).rejects.toMatchObject({ kind: "cancelled" });
    }
    expect([one.upstream.load.calls, server.messages.length]).toEqual([0, before]);
    await one.call({ params: tool("echo") }).outcome;
  },
);

const ask = (name: string, client: CallOptions["client"], result: unknown): CallOptions => ({
  params: tool(name),
  client: client ?? {},
  onRequest: (text, call) => {
    const { id } = JSON.parse(text);
    call.respond(JSON.stringify({ jsonrpc: "2.0", id: 12345, result: { action: "cancel" } }));
    call.respond(JSON.stringify({ jsonrpc: "2.0", id, result }));
    call.respond(JSON.stringify({ jsonrpc: "2.0", id, result: { action: "cancel" } }));
  },
});

test("what a server asks in the course of a call is asked of who can answer, and declined for who cannot", async () => {
  const server = await sdkServer("legacy");
  const one = oneServer(server.url);
  const elicited = { action: "accept", content: { name: "Ada" } };
  const sampled = { role: "assistant", model: "m", content: { type: "text", text: "yes" } };
  const rooted = { roots: [{ uri: "file:///w" }] };
  const done = async (options: CallOptions) => {
    const call = one.call(options);
    const { kind, text } = await call.outcome;
    return { asked: call.asked.map((each) => JSON.parse(each).method), kind, text };
  };
  const elicit = await done(ask("elicit", { elicitation: true }, elicited));
  expect([elicit.asked, JSON.parse(textIn(elicit))]).toEqual([["elicitation/create"], elicited]);
  const sample = await done(ask("sample", { sampling: true }, sampled));
  expect([sample.asked, JSON.parse(textIn(sample))]).toEqual([["sampling/createMessage"], sampled.content]);
  const roots = await done(ask("roots", { roots: true }, rooted));
  expect([roots.asked, JSON.parse(textIn(roots))]).toEqual([["roots/list"], rooted]);
  const declined = await done({ params: tool("elicit"), client: { sampling: true, roots: true } });
  expect([declined.asked, JSON.parse(textIn(declined))]).toEqual([[], { action: "decline" }]);
  for (const name of ["sample", "roots"]) {
    const refused = await done({ params: tool(name), client: { elicitation: true } });
    expect([name, refused.asked, refused.kind, JSON.parse(refused.text).code]).toEqual([
      name,
      [],
      "error",
      -32601,
    ]);
  }
});

test("what a modern server needs to know is a result, and the call goes on with the answers", async () => {
  const server = await sdkServer("modern");
  const one = oneServer(server.url);
  const client = { elicitation: true };
  const first = JSON.parse((await one.call({ params: tool("input"), client }).outcome).text);
  expect(first).toMatchObject({
    resultType: "input_required",
    requestState: "state",
    inputRequests: { who: { method: "elicitation/create" } },
  });
  const inputResponses = { who: { action: "accept", content: { name: "Ada" } } };
  const params = { ...tool("input"), inputResponses, requestState: "state" };
  expect(JSON.parse(textIn(await one.call({ params, client }).outcome))).toMatchObject(inputResponses);
  const refused = await one.call({ params: tool("input") }).outcome;
  expect([refused.kind, JSON.parse(refused.text).code]).toEqual(["error", -32021]);
});

test("claims of one era do not reach a server of the other", async () => {
  const server = await sdkServer("both");
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "liar", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": { roots: {} },
    "io.modelcontextprotocol/logLevel": "debug",
    traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
  };
  const legacy = oneServer(server.url, { protocol: "legacy" });
  await legacy.call({ params: tool("echo", {}, meta) }).outcome;
  expect(server.metas.pop()).toEqual({ traceparent: meta.traceparent });
  const modern = oneServer(server.url, { protocol: "modern" });
  await modern.call({ params: tool("echo", {}, meta), client: { sampling: true } }).outcome;
  expect(server.metas.pop()).toMatchObject({
    traceparent: meta.traceparent,
    "io.modelcontextprotocol/clientInfo": { name: "capsem" },
    "io.modelcontextprotocol/clientCapabilities": { sampling: {} },
    "io.modelcontextprotocol/logLevel": "debug",
  });
});

test("a session that the server forgot is opened again for the next call, and one that ends is ended there", async () => {
  const server = await sdkServer("legacy");
  const one = oneServer(server.url);
  await one.call({ params: tool("echo") }).outcome;
  server.forget();
  expect((await one.call({ params: tool("echo", { message: "again" }) }).outcome).kind).toBe("result");
  expect(server.messages.filter(({ method }) => method === "initialize")).toHaveLength(2);
  expect(server.sessions.size).toBe(1);
  await one.upstream.close();
  expect(server.sessions.size).toBe(0);
});

test.each([
  ["legacy, events", "legacy", false],
  ["legacy, JSON", "legacy", true],
  ["modern", "modern", false],
] as const)("an argument of 1 MB and an answer of 10 MB pass whole (%s)", async (_, era, json) => {
  const server = await sdkServer(era, { json });
  const one = oneServer(server.url);
  const message = "é".repeat(500_000);
  expect(textIn(await one.call({ params: tool("echo", { message }) }).outcome)).toBe(message);
  const answer = await one.call({ params: tool("gen", { count: 10_000_000 }), timeoutMs: 20_000 }).outcome;
  expect(textIn(answer).length).toBe(10_000_000);
});
