// What a client says of its own accord, on its way to the server.
import { expect, test, vi } from "vitest";
import {
  httpServer,
  initializeResult,
  plainHandshake,
  sendEvents,
  sendJson,
} from "../testing/http-server.ts";
import { oneServer } from "../testing/one-server.ts";

const ROOTS_CHANGED = "notifications/roots/list_changed";
const ALL = { sampling: true, elicitation: true, roots: true };
const answer = (id: unknown, result: unknown = {}) => ({ jsonrpc: "2.0", id, result });
const progress = (at: number) =>
  JSON.stringify({
    ...{ jsonrpc: "2.0", method: "notifications/progress" },
    params: { progressToken: "theirs", progress: at },
  });

/** A server of the handshake that asks in the course of a call; `slowly` holds what it is told back. */
async function asking(slowly?: (release: () => void) => void) {
  const streams: ReturnType<typeof sendEvents>[] = [];
  const standing: ReturnType<typeof sendEvents>[] = [];
  const server = await httpServer((asked) => {
    const { request, response, message } = asked;
    if (request.method === "GET") return standing.push(sendEvents(response));
    if (message.method === "initialize")
      return sendJson(response, initializeResult(message), { "mcp-session-id": "s" });
    if (message.method === "notifications/progress" && slowly !== undefined)
      return slowly(() => response.writeHead(202).end());
    if (message.method === "tools/call") {
      const stream = sendEvents(response);
      streams.push(stream);
      return stream.event({ jsonrpc: "2.0", id: "q", method: "sampling/createMessage", params: {} });
    }
    if (plainHandshake(asked)) return undefined;
    return response.writeHead(202).end();
  });
  const one = oneServer(server.url, { protocol: "legacy" });
  const told = () =>
    server.messages.flatMap(({ method, params }) =>
      method === "notifications/progress" ? [params?.progress] : [],
    );
  return { server, one, streams, standing, told };
}

test("a client's progress goes to the server while it waits for the answer, and not before or behind", async () => {
  const { server, one, streams, told } = await asking();
  const { call, asked, outcome } = one.call({ client: ALL });
  call.notify(progress(0));
  await vi.waitFor(() => expect(asked).toHaveLength(1));
  call.notify(progress(1));
  await vi.waitFor(() => expect(told()).toEqual([1]));
  expect(server.requests.at(-1)?.headers["mcp-session-id"]).toBe("s");
  call.respond(JSON.stringify(answer("q")));
  await vi.waitFor(() => expect(server.messages.at(-1)?.id).toBe("q"));
  call.notify(progress(2));
  const { id } = server.messages.find(({ method }) => method === "tools/call") ?? {};
  streams[0]?.event(answer(id));
  await outcome;
  call.notify(progress(3));
  expect(told()).toEqual([1]);
  expect(() => call.notify(JSON.stringify({ jsonrpc: "2.0", method: ROOTS_CHANGED }))).toThrow("no progress");
  expect(() => call.notify(JSON.stringify(answer(1)))).toThrow("no progress");
});

test("a server that takes it slowly is told the last of it", async () => {
  const releases: (() => void)[] = [];
  const { one, told } = await asking((release) => releases.push(release));
  const { call, asked } = one.call({ client: ALL });
  await vi.waitFor(() => expect(asked).toHaveLength(1));
  call.notify(progress(1));
  await vi.waitFor(() => expect(releases).toHaveLength(1));
  for (let at = 2; at < 50; at += 1) call.notify(progress(at));
  releases[0]?.();
  await vi.waitFor(() => expect(told()).toEqual([1, 49]));
  releases[1]?.();
});

test("a server that is told of other roots asks whom they are of, and a call beside it is not mistaken for it", async () => {
  const { server, one, standing } = await asking();
  const news = one.call({ method: ROOTS_CHANGED, params: {}, client: ALL });
  await vi.waitFor(() => expect(server.messages.at(-1)?.method).toBe(ROOTS_CHANGED));
  await vi.waitFor(() => expect(standing).toHaveLength(1));
  expect(server.messages.at(-1)).not.toHaveProperty("id");
  const init = server.messages.find(({ method }) => method === "initialize")?.params;
  expect(init).toMatchObject({ capabilities: { roots: { listChanged: true } } });
  // What else it asks for on that stream is of no call.
  standing[0]?.event({ jsonrpc: "2.0", id: 1, method: "elicitation/create", params: {} });
  await vi.waitFor(() =>
    expect(server.messages.at(-1)).toMatchObject({ id: 1, result: { action: "decline" } }),
  );
  standing[0]?.event({ jsonrpc: "2.0", id: 2, method: "roots/list" });
  await vi.waitFor(() => expect(news.asked).toHaveLength(1));
  news.call.respond(JSON.stringify(answer(2, { roots: [] })));
  expect(await news.outcome).toMatchObject({ kind: "result", text: "{}" });
  await vi.waitFor(() => expect(server.messages.at(-1)).toMatchObject({ id: 2, result: { roots: [] } }));

  const again = one.call({ method: ROOTS_CHANGED, params: {}, client: ALL });
  const call = one.call({ client: ALL });
  await vi.waitFor(() => expect(call.asked).toHaveLength(1));
  standing[0]?.event({ jsonrpc: "2.0", id: 3, method: "elicitation/create", params: {} });
  await vi.waitFor(() => expect(call.asked).toHaveLength(2));
  // It may be of either: nobody's roots are given for another's.
  standing[0]?.event({ jsonrpc: "2.0", id: 4, method: "roots/list" });
  await vi.waitFor(() => expect(server.messages.at(-1)).toMatchObject({ id: 4, error: { code: -32601 } }));
  expect([again.asked.length, call.asked.length]).toEqual([0, 2]);
  // It asks nothing: the news are over by themselves.
  expect(await again.outcome).toMatchObject({ kind: "result", text: "{}" });
});

test("a server of the newer protocol is told nothing beside its requests", async () => {
  const server = await httpServer(({ response, message }) => {
    const result = { supportedVersions: ["2026-07-28"], capabilities: {}, resultType: "complete" };
    sendJson(response, answer(message.id, result));
  });
  const one = oneServer(server.url, { protocol: "modern" });
  const news = one.call({ method: ROOTS_CHANGED, params: {}, client: ALL });
  expect(await news.outcome).toMatchObject({ kind: "result", text: "{}" });
  expect(server.messages.map(({ method }) => method)).toEqual(["server/discover"]);
});
