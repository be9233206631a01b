import { expect, test, vi } from "vitest";
import {
  httpServer,
  initializeResult,
  plainHandshake,
  sendEvents,
  sendJson,
  tokenOf,
} from "../testing/http-server.ts";
import { oneServer } from "../testing/one-server.ts";

const answer = (id: unknown, text: string) => `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${text}}`;
const RAW =
  '{ "content" : [ {"type":"text","text":"\\u0041b"} ], "n":1.50e1, "big":12345678901234567890, "x":null }';

test("fifty calls at once open one session, and each is answered byte for byte", async () => {
  const server = await httpServer((asked) => {
    if (plainHandshake(asked, "s1")) return;
    sendJson(asked.response, answer(asked.message.id, RAW));
  });
  const one = oneServer(server.url);
  const calls = await Promise.all(Array.from({ length: 50 }, () => one.call().outcome));
  expect(calls.every(({ kind, text }) => kind === "result" && text === RAW)).toBe(true);
  const methods = server.messages.map(({ method }) => method);
  expect(methods.filter((method) => method === "initialize")).toHaveLength(1);
  const headers = server.requests.at(-1)?.headers;
  expect([headers?.["mcp-session-id"], headers?.["mcp-protocol-version"]]).toEqual(["s1", "2025-11-25"]);
  expect(one.heard.health.map(({ state }) => state)).toEqual(["connecting", "ok"]);
});

test("an answer in an event stream is the same, with what came before it", async () => {
  const server = await httpServer((asked) => {
    if (plainHandshake(asked)) return;
    const events = sendEvents(asked.response);
    const token = tokenOf(asked.message);
    const progress = { progressToken: token, progress: 1, total: 2 };
    events.event({ jsonrpc: "2.0", method: "notifications/progress", params: progress });
    events.event({ jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: 1 } });
    events.event(answer(asked.message.id, RAW));
    events.end();
  });
  const one = oneServer(server.url);
  const call = one.call({ params: { name: "x", _meta: { progressToken: "theirs", other: 1 } } });
  expect(await call.outcome).toEqual({ kind: "result", text: RAW });
  expect(call.notifications.map((text) => JSON.parse(text).params)).toEqual([
    { progressToken: "theirs", progress: 1, total: 2 },
    { level: "info", data: 1 },
  ]);
  const sent = server.messages.at(-1)?.params?._meta as Record<string, unknown>;
  expect([sent.other, typeof sent.progressToken]).toEqual([1, "number"]);
});

test("a session that has expired is opened again, and the call that met it is made once", async () => {
  let sessions = 0;
  let runs = 0;
  let isLost = false;
  const server = await httpServer((asked) => {
    const { request, response, message } = asked;
    if (message.method === "initialize") {
      sessions += 1;
      isLost = false;
      return sendJson(response, initializeResult(message), { "mcp-session-id": `s${sessions}` });
    }
    if (plainHandshake(asked)) return;
    if (isLost || request.headers["mcp-session-id"] !== `s${sessions}`)
      return void response.writeHead(404).end();
    runs += 1;
    sendJson(response, answer(message.id, "{}"));
  });
  const one = oneServer(server.url);
  await one.call().outcome;
  isLost = true;
  const after = await Promise.all(Array.from({ length: 10 }, () => one.call().outcome));
  expect(after.map(({ kind }) => kind)).toEqual(Array(10).fill("result"));
  expect([sessions, runs]).toEqual([2, 11]);
  expect(one.heard.changed.map(({ what }) => what)).toEqual(["tools", "resources", "prompts"]);
});

test("nothing but a lost session is sent twice", async () => {
  let runs = 0;
  const ways: ((asked: Parameters<Parameters<typeof httpServer>[0]>[0]) => void)[] = [
    ({ response }) => void response.writeHead(500).end("broken"),
    ({ response }) => void response.destroy(),
    ({ response }) =>
      void response.writeHead(200, { "content-type": "application/json" }).end('{"jsonrpc":"2.0",'),
    ({ response }) => void response.writeHead(200, { "content-type": "text/html" }).end("<p>hello</p>"),
    ({ response }) =>
      void response
        .writeHead(400)
        .end('{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No session"}}'),
    ({ response }) => sendEvents(response).end(),
    ({ response, message }) => {
      const events = sendEvents(response);
      events.event(answer(Number(message.id) + 1, "{}"));
      events.event(answer("other", "{}"));
      events.end();
    },
    ({ response }) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
      response.write("{");
      setTimeout(() => response.destroy(), 20);
    },
  ];
  const server = await httpServer((asked) => {
    if (plainHandshake(asked, "s1")) return;
    ways[runs++]?.(asked);
  });
  const one = oneServer(server.url);
  const words: string[] = [];
  for (const _ of ways)
    words.push(
      await one.call().outcome.then(
        () => "done",
        (thrown: Error) => thrown.message,
      ),
    );
  expect(runs).toBe(ways.length);
  expect(words.map((text) => text.replace('Cannot use server "one": ', ""))).toEqual([
    "it answers with HTTP 500: broken",
    "ECONNRESET",
    expect.stringContaining("it sends what is no message"),
    "it answers with text/html",
    "it answers with HTTP 400: No session",
    "it ends its answer before the result",
    "it ends its answer before the result",
    "the server ended it before its end",
  ]);
});

test("a call that is cancelled is cancelled at the server, and its exchange ends", async () => {
  const gone = vi.fn();
  const server = await httpServer((asked) => {
    if (plainHandshake(asked, "s1")) return;
    sendEvents(asked.response).raw(": waiting\n\n");
    asked.response.on("close", gone);
  });
  const one = oneServer(server.url);
  const caller = new AbortController();
  const call = one.call({ signal: caller.signal });
  await vi.waitFor(() => expect(server.messages.at(-1)?.method).toBe("tools/call"));
  const id = server.messages.at(-1)?.id;
  caller.abort();
  await expect(call.outcome).rejects.toMatchObject({ kind: "cancelled" });
  await vi.waitFor(() => expect(gone).toHaveBeenCalled());
  expect(server.messages.at(-1)).toMatchObject({
    method: "notifications/cancelled",
    params: { requestId: id },
  });
  await vi.waitFor(() =>
    expect([one.upstream.load, one.http.openCount]).toEqual([{ calls: 0, bytes: 0 }, 0]),
  );
});

test("a call has an end in time, and the server hears of it", async () => {
  const server = await httpServer((asked) => void plainHandshake(asked));
  const one = oneServer(server.url);
  const call = one.call({ timeoutMs: 300 });
  await expect(call.outcome).rejects.toMatchObject({
    kind: "timeout",
    message: 'Cannot use server "one": it did not answer within 300 ms',
  });
  await vi.waitFor(() => expect(server.messages.at(-1)?.method).toBe("notifications/cancelled"));
  // That one was slow is no reason to leave it alone.
  expect(one.heard.health.at(-1)).toEqual({ state: "ok", error: null });
});

test("a stream that is cut goes on where it was, when the server wanted", async () => {
  const asked: { at: number; from: string | undefined }[] = [];
  let callId: unknown;
  const server = await httpServer((each) => {
    const { request, response, message } = each;
    if (request.method === "GET") {
      const from = request.headers["last-event-id"];
      if (from === undefined) return void response.writeHead(405).end();
      asked.push({ at: performance.now(), from: String(from) });
      const events = sendEvents(response);
      if (asked.length === 1) {
        events.event("", { id: "e2" });
        return events.end();
      }
      events.event(answer(callId, '{"late":true}'), { id: "e3" });
      return events.end();
    }
    if (plainHandshake(each, "s1")) return;
    callId = message.id;
    const events = sendEvents(response);
    events.raw("retry: 300\nid: e1\ndata:\n\n");
    asked.push({ at: performance.now(), from: undefined });
    asked.length = 0;
    startedAt = performance.now();
    events.end();
  });
  let startedAt = 0;
  const one = oneServer(server.url);
  expect(await one.call().outcome).toEqual({ kind: "result", text: '{"late":true}' });
  expect(asked.map(({ from }) => from)).toEqual(["e1", "e2"]);
  expect((asked[0]?.at ?? 0) - startedAt).toBeGreaterThan(280);
});

test("a call that is refused as if there were no session takes nothing from another one that runs on it", async () => {
  let listening: ReturnType<typeof sendEvents> | undefined;
  let sessions = 0;
  const server = await httpServer((asked) => {
    const { request, response, message } = asked;
    if (request.method === "GET" && sessions === 1) {
      listening = sendEvents(response);
      return;
    }
    if (message.method === "initialize") sessions += 1;
    if (plainHandshake(asked, `s${sessions}`)) return;
    if (message.result !== undefined) return void response.writeHead(202).end();
    if (message.params?.name === "slow") return void response.writeHead(202).end();
    if (message.params?.name === "odd") return void response.writeHead(400).end("no");
    sendJson(response, answer(message.id, "{}"));
  });
  const one = oneServer(server.url);
  const slow = one.call({
    params: { name: "slow" },
    client: { elicitation: true },
    onRequest: (_, call) => call.respond('{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}'),
  });
  await vi.waitFor(() => expect(server.messages.at(-1)?.params?.name).toBe("slow"));
  await vi.waitFor(() => expect(listening).toBeDefined());
  const { id } = server.messages.at(-1) ?? {};
  await expect(one.call({ params: { name: "odd" } }).outcome).rejects.toMatchObject({
    kind: "upstream_failed",
  });
  await one.call({ params: { name: "next" } }).outcome;
  expect(sessions).toBe(2);
  listening?.event({ jsonrpc: "2.0", id: "q", method: "elicitation/create", params: { message: "?" } });
  await vi.waitFor(() => expect(server.messages.at(-1)?.result).toEqual({ action: "accept" }));
  expect(server.requests.at(-1)?.headers["mcp-session-id"]).toBe("s1");
  listening?.event(answer(id, RAW));
  expect(await slow.outcome).toEqual({ kind: "result", text: RAW });
  await vi.waitFor(() => expect(one.http.openCount).toBe(0));
});
