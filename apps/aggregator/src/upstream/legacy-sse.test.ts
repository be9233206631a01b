import type { ServerResponse } from "node:http";
import { expect, test, vi } from "vitest";
import { httpServer, initializeResult, type Message, sendEvents } from "../testing/http-server.ts";
import { oneServer } from "../testing/one-server.ts";

interface SseServer {
  readonly url: string;
  readonly messages: Message[];
  readonly streams: ReturnType<typeof sendEvents>[];
  readonly responses: ServerResponse[];
}

/** HTTP+SSE as it was; `answer` may answer a call itself. */
async function sseServer(
  answer: (message: Message, stream: ReturnType<typeof sendEvents>) => unknown = () => undefined,
  endpoint = "/messages?session=1",
): Promise<SseServer> {
  const streams: SseServer["streams"] = [];
  const responses: ServerResponse[] = [];
  const server = await httpServer(({ request, response, message }) => {
    if (request.method === "GET") {
      const stream = sendEvents(response);
      streams.push(stream);
      responses.push(response);
      stream.event(endpoint, { event: "endpoint" });
      return;
    }
    if (request.url === "/mcp") return void response.writeHead(405).end();
    response.writeHead(202).end("Accepted");
    const stream = streams.at(-1);
    if (stream === undefined) return;
    if (message.method === "initialize")
      stream.event(initializeResult(message, { protocolVersion: "2024-11-05" }));
    else if (message.id !== undefined && answer(message, stream) === undefined) {
      stream.event({ jsonrpc: "2.0", id: message.id, result: { of: message.params?.name } });
    }
  });
  return { ...server, streams, responses };
}

test("a server of the first transport is found out, and calls side by side get their own answers", async () => {
  const server = await sseServer();
  const one = oneServer(server.url);
  const names = Array.from({ length: 20 }, (_, index) => `tool${index}`);
  const ends = await Promise.all(names.map((name) => one.call({ params: { name } }).outcome));
  expect(ends.map(({ text }) => JSON.parse(text).of)).toEqual(names);
  expect(server.streams).toHaveLength(1);
  expect(server.messages.filter(({ method }) => method === "initialize").length).toBe(2);
});

test("when its stream ends all calls fail, none is made again, and the next one opens another", async () => {
  const server = await sseServer(() => "later");
  const one = oneServer(server.url, { transport: "sse" });
  const calls = Array.from({ length: 5 }, () => one.call());
  await vi.waitFor(() =>
    expect(server.messages.filter(({ method }) => method === "tools/call")).toHaveLength(5),
  );
  server.responses[0]?.destroy();
  for (const { outcome } of calls) await expect(outcome).rejects.toMatchObject({ kind: "upstream_failed" });
  expect(server.messages.filter(({ method }) => method === "tools/call")).toHaveLength(5);
  const next = one.call();
  await vi.waitFor(() => expect(server.streams).toHaveLength(2));
  await vi.waitFor(() => expect(server.messages.at(-1)?.method).toBe("tools/call"));
  server.streams[1]?.event({ jsonrpc: "2.0", id: server.messages.at(-1)?.id, result: {} });
  expect((await next.outcome).kind).toBe("result");
});

test("an endpoint of another origin gets nothing", async () => {
  const evil = await httpServer(({ response }) => response.writeHead(202).end());
  const server = await sseServer(() => undefined, evil.url);
  const one = oneServer(server.url, { transport: "sse" });
  await expect(one.call().outcome).rejects.toThrow(/endpoint of another origin/);
  expect(evil.requests).toEqual([]);
});

test("a server that names no endpoint, or has no stream, fails by name", async () => {
  const table: [Parameters<typeof httpServer>[0], RegExp][] = [
    [({ response }) => response.writeHead(404).end(), /HTTP 404/],
    [
      ({ response }) => response.writeHead(200, { "content-type": "text/plain" }).end("hello"),
      /no event stream/,
    ],
    [({ response }) => sendEvents(response).end(), /ended its event stream/],
  ];
  for (const [serve, expected] of table) {
    const server = await httpServer(serve);
    const one = oneServer(server.url, { transport: "sse" });
    await expect(one.call().outcome).rejects.toThrow(expected);
    await vi.waitFor(() => expect(one.http.openCount).toBe(0));
  }
});

test("a request of the server is for the one call that is open, and for nobody when there are more", async () => {
  const ask = (id: number) => ({ jsonrpc: "2.0", id, method: "roots/list" });
  const server = await sseServer(() => "later");
  const one = oneServer(server.url, { transport: "sse" });
  const first = one.call({
    client: { roots: true },
    onRequest: (_, call) => call.respond('{"jsonrpc":"2.0","id":70,"result":{"roots":[]}}'),
  });
  await vi.waitFor(() => expect(server.messages.at(-1)?.method).toBe("tools/call"));
  const firstId = server.messages.at(-1)?.id;
  server.streams[0]?.event(ask(70));
  await vi.waitFor(() => expect(server.messages.at(-1)).toMatchObject({ id: 70, result: { roots: [] } }));
  const second = one.call({ client: { roots: true } });
  await vi.waitFor(() => expect(server.messages.at(-1)?.method).toBe("tools/call"));
  const secondId = server.messages.at(-1)?.id;
  server.streams[0]?.event(ask(71));
  await vi.waitFor(() => expect(server.messages.at(-1)).toMatchObject({ id: 71, error: { code: -32601 } }));
  expect([first.asked.length, second.asked.length]).toEqual([1, 0]);
  for (const id of [secondId, firstId]) server.streams[0]?.event({ jsonrpc: "2.0", id, result: { id } });
  expect(JSON.parse((await first.outcome).text).id).toBe(firstId);
  expect(JSON.parse((await second.outcome).text).id).toBe(secondId);
});
