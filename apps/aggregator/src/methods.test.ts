import type { Failure } from "@capsem/base";
import { expect, onTestFinished, test, vi } from "vitest";
import { httpServer, plainHandshake, sendEvents, sendJson } from "./testing/http-server.ts";
import { declared } from "./testing/one-server.ts";
import { ask, proxyEnd } from "./testing/proxy-end.ts";
import { sdkServer } from "./testing/sdk-server.ts";

function end() {
  const made = proxyEnd();
  onTestFinished(async () => {
    await made.close();
    expect(made.faults).toEqual([]);
  });
  return made;
}
const kindOf = (work: Promise<unknown>) =>
  work.then(
    () => "done",
    (thrown: Failure) => thrown.kind,
  );
const tool = (name: string, args: unknown = {}) => ({ name, arguments: args });

test("a call goes through with all that comes before its result, in order", async () => {
  const server = await sdkServer("legacy");
  const proxy = end();
  await proxy.set(1, [declared(server.url)]);
  const params = { ...tool("progress"), _meta: { progressToken: "p" } };
  const records = await ask(proxy.peer, { params });
  expect(records.map(({ kind }) => kind)).toEqual(["notification", "notification", "notification", "result"]);
  const answer = '{"jsonrpc":"2.0","id":ID,"result":{"action":"accept","content":{"name":"Ada"}}}';
  const elicited = await ask(proxy.peer, {
    params: tool("elicit"),
    client: { sampling: false, elicitation: true, roots: false },
    answer: ({ text }) => answer.replace("ID", JSON.stringify(JSON.parse(text).id)),
  });
  expect(elicited.map(({ kind }) => kind)).toEqual(["request", "result"]);
  expect(elicited[1]?.text).toContain("Ada");
  await vi.waitFor(() => expect(proxy.peer.streamCount).toBe(0));
});

test.each(["legacy", "modern"] as const)(
  "arguments that come apart are the last member of what a server is asked, as they were written (%s)",
  async (era) => {
    const calls: { text: string; header: unknown }[] = [];
    const server = await httpServer(({ request, response, message, text }) => {
      const answer = (result: unknown) => sendJson(response, { jsonrpc: "2.0", id: message.id, result });
      if (message.method === "server/discover" && era === "modern")
        return answer({ supportedVersions: ["2026-07-28"], capabilities: { tools: {} } });
      const property = { type: "string", "x-mcp-header": "Short" };
      if (message.method === "tools/list")
        return answer({ tools: [{ name: "t", inputSchema: { properties: { short: property } } }] });
      if (message.method !== "tools/call") return plainHandshake({ request, response, message, text });
      calls.push({ text, header: request.headers["mcp-param-short"] });
      answer({});
    });
    const proxy = end();
    await proxy.set(1, [declared(server.url)]);
    await proxy.call("server.catalog", { server: "one", refresh: false });
    const argumentsText = `{ "short":"s", "message" : "${"é\\u00e9".repeat(20_000)}" }`;
    const params = { name: "t", _meta: { progressToken: "p" } };
    expect(await ask(proxy.peer, { params, argumentsText })).toMatchObject([{ kind: "result" }]);
    const [sent] = calls;
    expect(sent?.text.endsWith(`,"arguments":${argumentsText}}}`)).toBe(true);
    expect(sent?.header).toBe(era === "modern" ? "s" : undefined);
    const asked = JSON.parse(sent?.text ?? "").params;
    expect(Object.keys(asked)).toEqual(["name", "_meta", "arguments"]);
    // Ours is in the place of the client's.
    expect(String(asked._meta.progressToken)).toMatch(/^\d+$/);
  },
);

test("arguments that come apart from what is no object are refused", async () => {
  const proxy = end();
  await proxy.set(1, [declared("http://127.0.0.1:1/mcp")]);
  expect(await kindOf(ask(proxy.peer, { params: "", argumentsText: "{}" }))).toBe("invalid_input");
});

test("what cannot be asked is refused before any server hears of it", async () => {
  const server = await httpServer(({ response }) => response.writeHead(500).end());
  const proxy = end();
  await proxy.set(1, [declared(server.url)]);
  expect(await kindOf(ask(proxy.peer, { server: "two" }))).toBe("not_found");
  for (const method of [
    "initialize",
    "server/discover",
    "subscriptions/listen",
    "notifications/x",
    "",
    "a b",
    "x".repeat(200),
  ]) {
    expect([method, await kindOf(ask(proxy.peer, { method }))]).toEqual([method, "invalid_input"]);
  }
  for (const timeoutMs of [0, -1, 1e12])
    expect(await kindOf(ask(proxy.peer, { timeoutMs }))).toBe("invalid_input");
  expect(await kindOf(proxy.peer.open("server.request", { server: "one" }))).toBe("invalid_input");
  expect(await kindOf(proxy.call("server.catalog", { server: "two", refresh: false }))).toBe("not_found");
  expect(server.requests).toEqual([]);
});

test("a failure before the first record is the call's, and after it is a record", async () => {
  const server = await httpServer((asked) => {
    if (plainHandshake(asked)) return;
    const { response, message } = asked;
    if (message.params?.name === "at once") return response.writeHead(503).end();
    const events = sendEvents(response);
    events.event({
      jsonrpc: "2.0",
      method: "notifications/message",
      params: { level: "info", data: "soon" },
    });
    if (message.params?.name === "cut") setTimeout(() => response.destroy(), 50);
  });
  const proxy = end();
  await proxy.set(1, [declared(server.url)]);
  const failure = await ask(proxy.peer, { params: tool("at once") }).catch((thrown: unknown) => thrown);
  expect(failure).toMatchObject({
    kind: "upstream_failed",
    message: 'Cannot use server "one": it answers with HTTP 503',
  });
  const cut = await ask(proxy.peer, { params: tool("cut") });
  expect(cut.map(({ kind }) => kind)).toEqual(["notification", "error"]);
  expect(JSON.parse(cut[1]?.text ?? "")).toMatchObject({ code: -32603, data: { kind: "upstream_failed" } });
  const late = await ask(proxy.peer, { params: tool("late"), timeoutMs: 200 });
  expect(JSON.parse(late.at(-1)?.text ?? "")).toMatchObject({ code: -32000, data: { kind: "timeout" } });
});

test("a proxy that lets a call go, or goes itself, cancels it at the server", async () => {
  const server = await sdkServer("modern");
  const proxy = end();
  await proxy.set(1, [declared(server.url)]);
  await ask(proxy.peer, { params: tool("echo") });
  const caller = new AbortController();
  const first = kindOf(ask(proxy.peer, { params: tool("wait", { name: "first" }), signal: caller.signal }));
  const second = kindOf(ask(proxy.peer, { params: tool("wait", { name: "second" }) }));
  await vi.waitFor(() => expect(server.metas).toHaveLength(3));
  caller.abort();
  await vi.waitFor(() => expect(server.cancelled).toEqual(["first"]));
  proxy.peer.close();
  await vi.waitFor(() => expect(server.cancelled).toEqual(["first", "second"]));
  expect([await first, await second]).toEqual(["cancelled", "peer_lost"]);
  await vi.waitFor(() => expect(proxy.servers.get("one").load).toEqual({ calls: 0, bytes: 0 }));
});

test("a thousand calls that are abandoned leave no stream, no exchange and no byte", async () => {
  const server = await sdkServer("legacy");
  const proxy = end();
  await proxy.set(1, [declared(server.url)]);
  await ask(proxy.peer, { params: tool("echo") });
  for (let round = 0; round < 25; round += 1) {
    const calls = Array.from({ length: 40 }, (_, index) => {
      const caller = new AbortController();
      setTimeout(() => caller.abort(), index % 10);
      return kindOf(ask(proxy.peer, { params: tool("wait"), signal: caller.signal }));
    });
    expect(new Set(await Promise.all(calls))).toEqual(new Set(["cancelled"]));
  }
  const left = () => [proxy.peer.streamCount, proxy.servers.get("one").load, proxy.http.openCount];
  // The stream of what belongs to no call is open for as long as the session is.
  await vi.waitFor(() => expect(left()).toEqual([0, { calls: 0, bytes: 0 }, 1]), 10_000);
});

test("another set takes the place of the old one in one step, and what did not change keeps its session", async () => {
  const [kept, changed, added] = await Promise.all([
    sdkServer("legacy"),
    sdkServer("legacy"),
    sdkServer("legacy"),
  ]);
  const proxy = end();
  const one = declared(kept.url);
  await proxy.set(1, [one, declared(changed.url, { name: "two" })]);
  await Promise.all(["one", "two"].map((server) => ask(proxy.peer, { server, params: tool("echo") })));
  const waiting = ask(proxy.peer, { server: "two", params: tool("progress") });
  await proxy.set(2, [
    { ...one, timeout_ms: 1_000 },
    declared(added.url, { name: "two" }),
    declared(added.url, { name: "three" }),
  ]);
  expect((await waiting).at(-1)?.kind).toBe("result");
  await Promise.all(["one", "two"].map((server) => ask(proxy.peer, { server, params: tool("echo") })));
  const initialized = [kept, changed, added].map(
    ({ messages }) => messages.filter(({ method }) => method === "initialize").length,
  );
  expect(initialized).toEqual([1, 1, 1]);
  // The session that nobody needs is ended at its server; one that nobody asked for was never opened.
  await vi.waitFor(() =>
    expect([kept, changed, added].map(({ sessions }) => sessions.size)).toEqual([1, 0, 1]),
  );
  await proxy.set(1, []);
  expect(await kindOf(ask(proxy.peer, { params: tool("echo") }))).toBe("done");
  await proxy.set(3, []);
  expect(await kindOf(ask(proxy.peer, { params: tool("echo") }))).toBe("not_found");
});

const MEGABYTES = Buffer.alloc(1_048_576, " ");

test("one dead, one slow and one rude server do not hold a healthy one, and each is named", async () => {
  const healthy = await sdkServer("modern");
  const dead = await httpServer(() => undefined);
  await dead.close();
  const slow = await httpServer(() => undefined);
  const rude = await httpServer((asked) => {
    if (plainHandshake(asked)) return;
    asked.response.writeHead(200, { "content-type": "application/json" });
    for (let count = 0; count < 17; count += 1) asked.response.write(MEGABYTES);
    asked.response.end();
  });
  const proxy = end();
  const all = { one: healthy.url, dead: dead.url, slow: slow.url, rude: rude.url };
  await proxy.set(
    1,
    Object.entries(all).map(([name, url]) => declared(url, { name })),
  );
  const bad = ["dead", "slow", "rude"].flatMap((server) =>
    Array.from({ length: 3 }, () => ask(proxy.peer, { server, params: tool("x"), timeoutMs: 60_000 })),
  );
  const ends = Promise.allSettled(bad);
  for (let count = 0; count < 20; count += 1) {
    expect((await ask(proxy.peer, { params: tool("echo", { message: "m" }) })).at(-1)?.kind).toBe("result");
  }
  // It has answered nothing yet, and its callers have time.
  expect(proxy.servers.get("slow").load.calls).toBe(3);
  await slow.close();
  const words = (await ends).map((one) => (one.status === "rejected" ? String(one.reason.message) : "done"));
  for (const [index, name] of ["dead", "slow", "rude"].entries()) {
    expect(words[index * 3]).toContain(`Cannot use server "${name}"`);
  }
  expect(proxy.told).toContainEqual([
    "server.health",
    { server: "dead", state: "failed", error: "ECONNREFUSED" },
  ]);
});
