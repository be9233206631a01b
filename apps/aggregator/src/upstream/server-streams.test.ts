import { expect, test, vi } from "vitest";
import {
  type Asked,
  httpServer,
  initializeResult,
  plainHandshake,
  sendEvents,
  sendJson,
  tokenOf,
} from "../testing/http-server.ts";
import { oneServer } from "../testing/one-server.ts";

type Events = ReturnType<typeof sendEvents>;

/** A server of the handshake with a stream of what belongs to no call. `call` gets the calls. */
async function streaming(call: (asked: Asked, stream: Events | undefined) => unknown) {
  const streams: Events[] = [];
  const froms: (string | undefined)[] = [];
  const server = await httpServer((asked) => {
    const { request, response, message } = asked;
    if (request.method === "GET") {
      froms.push(request.headers["last-event-id"]?.toString());
      return streams.push(sendEvents(response));
    }
    if (message.method === "initialize")
      return sendJson(response, initializeResult(message), { "mcp-session-id": "s" });
    if (plainHandshake(asked)) return;
    return call(asked, streams.at(-1));
  });
  const one = oneServer(server.url, { protocol: "legacy" });
  return { server, one, streams, froms };
}
const answer = (id: unknown, result: unknown = {}) => ({ jsonrpc: "2.0", id, result });

test("a request on the stream of nobody is for the one call that is open, and declined when there are more or none", async () => {
  const { server, one, streams } = await streaming(() => undefined);
  const elicit = (id: number | string) => ({ jsonrpc: "2.0", id, method: "elicitation/create", params: {} });
  const client = { elicitation: true };
  const first = one.call({ client });
  await vi.waitFor(() => expect([streams.length, server.messages.at(-1)?.method]).toEqual([1, "tools/call"]));
  streams[0]?.event(elicit("a"));
  await vi.waitFor(() => expect(first.asked).toHaveLength(1));
  first.call.respond('{"jsonrpc":"2.0","id":"a","result":{"action":"accept"}}');
  await vi.waitFor(() =>
    expect(server.messages.at(-1)).toMatchObject({ id: "a", result: { action: "accept" } }),
  );
  expect(server.requests.at(-1)?.headers["mcp-session-id"]).toBe("s");
  const second = one.call({ client });
  await vi.waitFor(() => expect(server.messages.at(-1)?.method).toBe("tools/call"));
  streams[0]?.event(elicit(0));
  await vi.waitFor(() =>
    expect(server.messages.at(-1)).toMatchObject({ id: 0, result: { action: "decline" } }),
  );
  expect([first.asked.length, second.asked.length]).toEqual([1, 0]);
  streams[0]?.event({ jsonrpc: "2.0", id: 9, method: "ping" });
  await vi.waitFor(() => expect(server.messages.at(-1)).toMatchObject({ id: 9, result: {} }));
  streams[0]?.event({ jsonrpc: "2.0", id: 10, method: "no/such" });
  await vi.waitFor(() => expect(server.messages.at(-1)).toMatchObject({ id: 10, error: { code: -32601 } }));
});

test("what comes on the stream of nobody goes to where it belongs", async () => {
  const { server, one, streams } = await streaming(() => undefined);
  const call = one.call({ params: { name: "x", _meta: { progressToken: "mine" } } });
  await vi.waitFor(() => expect([streams.length, server.messages.at(-1)?.method]).toEqual([1, "tools/call"]));
  const message = server.messages.at(-1);
  const progressToken = tokenOf(message);
  const say = (method: string, params: unknown) => streams[0]?.event({ jsonrpc: "2.0", method, params });
  say("notifications/message", { level: "info", data: "log" });
  say("notifications/progress", { progressToken, progress: 1 });
  say("notifications/progress", { progressToken: "unknown", progress: 2 });
  say("notifications/resources/updated", { uri: "test://a" });
  say("notifications/prompts/list_changed", undefined);
  say("notifications/nonsense", {});
  streams[0]?.event("{broken");
  await vi.waitFor(() => expect(one.heard.changed).toHaveLength(2));
  expect(one.heard.logs.map((text) => JSON.parse(text))).toEqual([{ level: "info", data: "log" }]);
  expect(call.notifications.map((text) => JSON.parse(text).params ?? null)).toEqual([
    { progressToken: "mine", progress: 1 },
    {},
  ]);
  // It ended by what is no message, and is asked for again.
  await vi.waitFor(() => expect(streams.length).toBe(2), 5_000);
  streams[1]?.event(answer(message?.id, { from: "elsewhere" }));
  expect(JSON.parse((await call.outcome).text)).toEqual({ from: "elsewhere" });
});

test("an answer that is only announced is taken from the stream of nobody", async () => {
  const { one } = await streaming(({ response, message }, stream) => {
    response.writeHead(202).end();
    setTimeout(() => stream?.event(answer(String(message.id), { late: true })), 50);
  });
  await one.call({ method: "ping", params: {} }).outcome.catch(() => undefined);
  expect(JSON.parse((await one.call().outcome).text)).toEqual({ late: true });
});

test("the stream of nobody goes on where it was, in the server's own time", async () => {
  const { one, streams, froms } = await streaming(({ response, message }) =>
    sendJson(response, answer(message.id)),
  );
  await one.call().outcome;
  await vi.waitFor(() => expect(streams).toHaveLength(1));
  streams[0]?.raw("retry: 120\nid: e7\ndata:\n\n");
  streams[0]?.end();
  await vi.waitFor(() => expect(froms).toEqual([undefined, "e7"]));
});

test.each([1_000, 100_000, 1_200_000])(
  "an answer with a text of %i bytes that is no UTF-8 has the sign for that in its place",
  async (size) => {
    const { one } = await streaming(({ response, message }) => {
      const text = `{"jsonrpc":"2.0","id":${message.id},"result":{"text":"${"x".repeat(size)}\xff"}}`;
      response.setHeader("content-type", "application/json").end(Buffer.from(text, "latin1"));
    });
    const { text } = await one.call().outcome;
    expect(JSON.parse(text).text === `${"x".repeat(size)}\ufffd`).toBe(true);
  },
);

test.each(["JSON", "events"])(
  "a large answer is the server's own bytes, in whatever spelling (%s)",
  async (form) => {
    const filler = "é🙂\\u00e9\\n ".repeat(120_000);
    const raw = `{ "content":[{"type":"text" ,"text":"${filler}"}],"n":1.50e+1,"__proto__":{"a":12345678901234567890} }`;
    const { one } = await streaming(({ response, message }) => {
      const kind = message.params?.name === "error" ? "error" : "result";
      const text = `\uFEFF{"${kind}":${raw}, "jsonrpc" : "2.0","id":${message.id}}`;
      if (form === "JSON") return sendJson(response, text);
      const events = sendEvents(response);
      events.event(text.slice(1));
      events.end();
    });
    for (const name of ["result", "error"]) {
      const outcome = await one.call({ params: { name } }).outcome;
      expect([outcome.kind, Buffer.compare(outcome.bytes ?? Buffer.of(), Buffer.from(raw))]).toEqual([
        name,
        0,
      ]);
      expect(outcome.text === raw).toBe(true);
    }
  },
);
