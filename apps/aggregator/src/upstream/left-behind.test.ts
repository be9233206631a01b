// Calls that are over while something of them still waits: their places are free at once.
import { defer } from "@capsem/base";
import { expect, test, vi } from "vitest";
import { UPSTREAM_LIMITS } from "../limits.ts";
import {
  type Asked,
  httpServer,
  initializeResult,
  type Message,
  plainHandshake,
  sendEvents,
  sendJson,
} from "../testing/http-server.ts";
import { type OneServer, oneServer } from "../testing/one-server.ts";
import { OpenCall } from "./open-call.ts";

const TIMEOUT_MS = 60_000;
const answer = (message: Message | undefined, result: unknown = {}) => ({
  jsonrpc: "2.0",
  id: message?.id,
  result,
});
const isCall = ({ method }: Message) => method === "tools/call";
const atRest = (one: OneServer) =>
  vi.waitFor(() => expect(one.upstream.load).toEqual({ calls: 0, bytes: 0 }), 5_000);

test("an answer on the stream of nobody ends the call, whose own stream the server leaves open", async () => {
  let nobody: ReturnType<typeof sendEvents> | undefined;
  const server = await httpServer((asked) => {
    if (asked.request.method === "GET") {
      nobody = sendEvents(asked.response);
      return;
    }
    if (plainHandshake(asked, "s")) return;
    sendEvents(asked.response).raw(": on it\n\n");
  });
  const one = oneServer(server.url, { protocol: "legacy" });
  const call = one.call({ timeoutMs: TIMEOUT_MS });
  await vi.waitFor(() => expect([nobody === undefined, server.messages.some(isCall)]).toEqual([false, true]));
  nobody?.event(answer(server.messages.find(isCall), { from: "elsewhere" }));
  expect(JSON.parse((await call.outcome).text)).toEqual({ from: "elsewhere" });
  await atRest(one);
  await vi.waitFor(() => expect(one.http.openCount).toBe(1));
});

/** HTTP+SSE whose POST of a call gets no answer by itself. */
async function silentSse() {
  const streams: ReturnType<typeof sendEvents>[] = [];
  const server = await httpServer(({ request, response, message }) => {
    if (request.method === "GET") {
      const stream = sendEvents(response);
      streams.push(stream);
      return stream.event("/messages", { event: "endpoint" });
    }
    if (isCall(message)) return;
    response.writeHead(202).end();
    if (message.method === "initialize")
      streams.at(-1)?.event(initializeResult(message, { protocolVersion: "2024-11-05" }));
  });
  const one = oneServer(server.url, { transport: "sse" });
  const call = one.call({ timeoutMs: TIMEOUT_MS });
  await vi.waitFor(() => expect(server.messages.some(isCall)).toBe(true));
  return { server, one, call, stream: streams[0] };
}

test("an answer by the one stream of the first transport ends a call whose request the server leaves open", async () => {
  const { server, one, call, stream } = await silentSse();
  stream?.event(answer(server.messages.find(isCall), { of: "stream" }));
  expect(JSON.parse((await call.outcome).text)).toEqual({ of: "stream" });
  await atRest(one);
});

test("the end of the one stream of the first transport ends a call whose request the server leaves open", async () => {
  const { one, call, stream } = await silentSse();
  stream?.end();
  await expect(call.outcome).rejects.toMatchObject({ kind: "upstream_failed" });
  await atRest(one);
});

test("a call that is answered elsewhere ends when there is no such stream after all", async () => {
  let get: Asked | undefined;
  const server = await httpServer((asked) => {
    if (asked.request.method === "GET") {
      get = asked;
      return;
    }
    if (plainHandshake(asked, "s")) return;
    asked.response.writeHead(202).end();
  });
  const one = oneServer(server.url, { protocol: "legacy" });
  const call = one.call({ timeoutMs: TIMEOUT_MS });
  await vi.waitFor(() => expect([get === undefined, server.messages.some(isCall)]).toEqual([false, true]));
  // Its answer to the call is read by now, or comes first.
  await one.call({ method: "ping", timeoutMs: 300 }).outcome.catch(() => undefined);
  get?.response.writeHead(405).end();
  await expect(call.outcome).rejects.toThrow(/answers nothing/);
  await atRest(one);
});

test("a call whose time is over holds no place for a reader that takes nothing", async () => {
  const server = await httpServer((asked) => {
    if (plainHandshake(asked)) return;
    sendEvents(asked.response).event({ jsonrpc: "2.0", method: "notifications/nonsense", params: {} });
  });
  const one = oneServer(server.url, { protocol: "legacy" });
  const taken = defer<void>();
  const call = one.upstream.start(
    {
      ...{ method: "tools/call", paramsText: "{}", timeoutMs: 300 },
      client: { sampling: false, elicitation: false, roots: false },
    },
    { notification: () => taken.promise, request: () => taken.promise },
    new AbortController().signal,
  );
  await expect(call.outcome).rejects.toMatchObject({ kind: "timeout" });
  await atRest(one);
  taken.resolve();
});

/** So many as have a place, cancelled when they wait for the server; the next call has no time to wait for them. */
async function cancelMany(one: OneServer, method: string, areUnderWay: () => unknown): Promise<void> {
  const caller = new AbortController();
  const calls = Array.from({ length: UPSTREAM_LIMITS.callsMax }, (_, at) =>
    one.call({ method, params: { uri: `test://${at}` }, signal: caller.signal }),
  );
  await vi.waitFor(areUnderWay, 5_000);
  caller.abort();
  await Promise.allSettled(calls.map(({ outcome }) => outcome));
  expect((await one.call({ timeoutMs: UPSTREAM_LIMITS.newsWaitMs / 2 }).outcome).kind).toBe("result");
}

test("subscriptions that are cancelled while the server acknowledges none hold no places", async () => {
  const server = await httpServer(({ response, message }) => {
    if (message.method === "subscriptions/listen") return sendEvents(response);
    const result = { supportedVersions: ["2026-07-28"], capabilities: {}, resultType: "complete" };
    return sendJson(response, answer(message, result));
  });
  const one = oneServer(server.url, { protocol: "modern" });
  await one.call().outcome;
  await cancelMany(one, "resources/subscribe", () =>
    expect(server.messages.at(-1)?.method).toBe("subscriptions/listen"),
  );
});

test("news that are cancelled while the server takes none hold no places", async () => {
  const news = "notifications/roots/list_changed";
  const server = await httpServer((asked) => {
    if (asked.message.method === news || plainHandshake(asked)) return;
    sendJson(asked.response, answer(asked.message));
  });
  const one = oneServer(server.url, { protocol: "legacy" });
  await one.call().outcome;
  await cancelMany(one, news, () => expect(server.messages.at(-1)?.method).toBe(news));
});

test("a server that is gone while its stream is asked for holds no connection", async () => {
  const server = await httpServer(() => undefined);
  const one = oneServer(server.url, { transport: "sse" });
  const call = one.call({ timeoutMs: TIMEOUT_MS });
  await vi.waitFor(() => expect(server.requests).toHaveLength(1));
  await one.upstream.close();
  await expect(call.outcome).rejects.toThrow(/no longer declared/);
  await vi.waitFor(() => expect(one.http.openCount).toBe(0), 3_000);
});

test("calls of one caller leave no listener with it", async () => {
  const caller = new AbortController();
  const added = vi.spyOn(caller.signal, "addEventListener");
  const removed = vi.spyOn(caller.signal, "removeEventListener");
  const sink = { notification: async () => undefined, request: async () => undefined };
  const client = { sampling: false, elicitation: false, roots: false };
  const request = { method: "ping", paramsText: undefined, client, timeoutMs: 5_000 };
  for (let n = 0; n < 3; n += 1)
    new OpenCall(request, sink, caller.signal).settle({ kind: "result", text: "{}" });
  expect([added.mock.calls.length, removed.mock.calls.length]).toEqual([3, 3]);
});
