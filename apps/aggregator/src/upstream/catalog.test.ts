import { expect, test, vi } from "vitest";
import { CATALOG_LIMITS } from "../limits.ts";
import {
  httpServer,
  initializeResult,
  type Message,
  plainHandshake,
  sendEvents,
  sendJson,
} from "../testing/http-server.ts";
import { oneServer } from "../testing/one-server.ts";

const { signal } = new AbortController();

/** Answers lists with the text that `result` gives. */
async function listing(result: (message: Message) => string | null, capabilities: unknown = { tools: {} }) {
  const server = await httpServer((asked) => {
    const { response, message } = asked;
    if (message.method === "initialize")
      return sendJson(response, initializeResult(message, { capabilities }));
    if (plainHandshake(asked)) return;
    const text = result(message);
    const error = `{"jsonrpc":"2.0","id":${message.id},"error":{"code":-32601,"message":"Method not found"}}`;
    sendJson(response, text === null ? error : `{"jsonrpc":"2.0","id":${message.id},"result":${text}}`);
  });
  return { server, one: oneServer(server.url, { protocol: "legacy" }) };
}

test("definitions are as the server wrote them, and what is no object is left out", async () => {
  const odd = '{ "name":"a" , "x":1.50, "inputSchema":{"type":"object","z":12345678901234567890} }';
  const { one } = await listing(() => `{"tools":[${odd}, 7, null, "b", [], {"name":"b"}]}`);
  const catalog = await one.upstream.catalog(false, signal);
  expect(catalog.tools).toEqual([odd, '{"name":"b"}']);
});

test("lists that a server does not have are empty, whatever it says", async () => {
  const all = { tools: {}, resources: {}, prompts: {} };
  const { one, server } = await listing(
    ({ method }) => (method === "tools/list" ? '{"tools":[]}' : null),
    all,
  );
  expect(await one.upstream.catalog(false, signal)).toMatchObject({
    tools: [],
    resources: [],
    templates: [],
    prompts: [],
  });
  expect(server.messages.map(({ method }) => method)).toContain("prompts/list");
  const none = await listing(() => null, {});
  expect(await none.one.upstream.catalog(false, signal)).toMatchObject({ tools: [], capabilities: "{}" });
  expect(none.server.messages.map(({ method }) => method)).not.toContain("tools/list");
});

test("a list without end, or of another form, is the server's failure", async () => {
  const big = `{"name":"${"x".repeat(1_000_000)}"}`;
  let page = 0;
  const table: [string, (message: Message) => string, RegExp][] = [
    ["the same cursor", () => '{"tools":[],"nextCursor":"a"}', /has no end in tools\/list/],
    ["always another cursor", () => `{"tools":[],"nextCursor":"${page++}"}`, /has no end in tools\/list/],
    [
      "too many",
      () =>
        `{"tools":[${Array(CATALOG_LIMITS.itemsMax + 1)
          .fill("{}")
          .join(",")}]}`,
      /lists more than/,
    ],
    ["too large", () => `{"tools":[${Array(13).fill(big).join(",")}]}`, /lists more than/],
    ["no list", () => '{"tools":{}}', /without a list/],
    ["nothing", () => "{}", /without a list/],
  ];
  for (const [name, result, expected] of table) {
    const { one } = await listing(result);
    const failure = await one.upstream.catalog(false, signal).catch((thrown: unknown) => thrown);
    expect(failure, name).toMatchObject({
      kind: "upstream_failed",
      message: expect.stringMatching(expected),
    });
  }
});

test("many who ask at once cause one reading, and who asks anew causes another", async () => {
  const { one, server } = await listing(() => '{"tools":[{"name":"a"}]}');
  await Promise.all(Array.from({ length: 9 }, () => one.upstream.catalog(false, signal)));
  await one.upstream.catalog(true, signal);
  expect(server.messages.filter(({ method }) => method === "tools/list")).toHaveLength(2);
  expect(server.messages.filter(({ method }) => method === "initialize")).toHaveLength(1);
});

test("who asks after a list has changed gets it as it is now, whatever was being read", async () => {
  const held: (() => void)[] = [];
  let count = 1;
  const server = await httpServer((asked) => {
    const { response, message } = asked;
    if (plainHandshake(asked)) return;
    const tools = Array.from({ length: count }, (_, at) => ({ name: `tool${at}` }));
    const answer = () => sendJson(response, { jsonrpc: "2.0", id: message.id, result: { tools } });
    if (message.method !== "tools/list" || count > 1) {
      if (message.method === "tools/list") return answer();
      const events = sendEvents(response);
      events.event({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
      events.event({ jsonrpc: "2.0", id: message.id, result: {} });
      events.end();
    } else held.push(answer);
  });
  const one = oneServer(server.url, { protocol: "legacy" });
  const before = one.upstream.catalog(false, signal);
  await vi.waitFor(() => expect(held).toHaveLength(1));
  count = 2;
  await one.call().outcome;
  expect(one.heard.changed).toHaveLength(1);
  const after = one.upstream.catalog(true, signal);
  held[0]?.();
  expect([(await before).tools.length, (await after).tools.length]).toEqual([1, 2]);
  expect((await one.upstream.catalog(false, signal)).tools).toHaveLength(2);
});

test("a server whose lists cannot be read is in trouble, though it answers; it is well when they can be", async () => {
  let isSpoilt = true;
  const { one } = await listing(() => (isSpoilt ? '{"tools":7}' : '{"tools":[]}'));
  await expect(one.upstream.catalog(true, signal)).rejects.toMatchObject({ kind: "upstream_failed" });
  expect(one.heard.health.at(-1)).toEqual({ state: "failed", error: "it answers tools/list without a list" });
  isSpoilt = false;
  await one.upstream.catalog(true, signal);
  expect(one.heard.health.at(-1)).toEqual({ state: "ok", error: null });
});
