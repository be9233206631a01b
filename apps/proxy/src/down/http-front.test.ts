import { expect, test } from "vitest";
import { type HttpAsk, HttpGuest, requestBytes } from "./testing/http-guest.ts";
import { type LaneRig, laneRig, until } from "./testing/lane-rig.ts";

const rpc = (method: string, params?: unknown, id: unknown = 1) => ({ jsonrpc: "2.0", id, method, params });
const call = (name: string, args: unknown = {}, id: unknown = 1) =>
  rpc("tools/call", { name, arguments: args }, id);
const asked = async (rig: LaneRig, what: HttpAsk) => {
  const guest = new HttpGuest(rig);
  const answer = await guest.ask(what);
  guest.stream.reset("cancelled");
  return answer;
};

test("one message a request, answered as JSON, and the connection lives on", async () => {
  const rig = laneRig();
  const guest = new HttpGuest(rig, "curl");
  for (let id = 1; id <= 3; id += 1) {
    const { status, headers, body } = await guest.ask({ body: call("echo", { text: "hi" }, id) });
    expect(status).toBe(200);
    expect(headers.get("content-type")).toBe("application/json");
    expect(headers.has("mcp-session-id")).toBe(false);
    expect(body).toBe(`{"jsonrpc":"2.0","id":${id},"result":{"content":[{"type":"text","text":"hi"}]}}`);
  }
  expect(rig.rail.received.map(({ processName }) => processName)).toEqual(["curl", "curl", "curl"]);
  expect(rig.rail.clients[0]).toMatchObject({
    transport: "http",
    taintKey: "http",
    protocolHint: "2025-03-26",
  });
  await until(() => rig.rail.closed.length === 3, "their conversations are closed");
});

test("a payload is passed on byte for byte", async () => {
  const rig = laneRig();
  const raw = '{ "content":[ ],"x":1.0,"big":12345678901234567890,"e":"\\u00e9\\/ü", "a":null }';
  const { body } = await asked(rig, { body: call("raw", { raw }) });
  expect(body).toBe(`{"jsonrpc":"2.0","id":1,"result":${raw}}`);
});

interface Case {
  readonly name: string;
  readonly ask: HttpAsk;
  readonly status: number;
  readonly code?: number;
  readonly allow?: string;
}
const ping = rpc("ping");

const CASES: readonly Case[] = [
  {
    name: "a notification",
    ask: { body: { jsonrpc: "2.0", method: "notifications/initialized" } },
    status: 202,
  },
  { name: "a batch", ask: { body: [ping] }, status: 400, code: -32_600 },
  { name: "no JSON", ask: { body: "{nonsense" }, status: 400, code: -32_700 },
  { name: "no message", ask: { body: { id: 1 } }, status: 400, code: -32_600 },
  {
    name: "a member twice",
    ask: { body: '{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}' },
    status: 400,
    code: -32_600,
  },
  { name: "an empty body", ask: { body: "" }, status: 400, code: -32_700 },
  {
    name: "an answer without a session",
    ask: { body: { jsonrpc: "2.0", id: 1, result: {} } },
    status: 400,
    code: -32_600,
  },
  { name: "another path", ask: { path: "/", body: ping }, status: 404 },
  { name: "a path behind it", ask: { path: "/mcp/x", body: ping }, status: 404 },
  {
    name: "well-known paths",
    ask: { method: "GET", path: "/.well-known/oauth-authorization-server" },
    status: 404,
  },
  { name: "a query", ask: { path: "/mcp?a=b", body: ping }, status: 200 },
  { name: "GET without a session", ask: { method: "GET" }, status: 405, allow: "POST" },
  { name: "DELETE without a session", ask: { method: "DELETE" }, status: 405, allow: "POST" },
  { name: "PUT", ask: { method: "PUT", body: ping }, status: 405, allow: "POST" },
  { name: "OPTIONS", ask: { method: "OPTIONS" }, status: 405, allow: "POST" },
  {
    name: "GET with an unknown session",
    ask: { method: "GET", headers: { "mcp-session-id": "no" } },
    status: 404,
    code: -32_001,
  },
  {
    name: "DELETE with an unknown session",
    ask: { method: "DELETE", headers: { "mcp-session-id": "no" } },
    status: 404,
  },
  {
    name: "POST with an unknown session",
    ask: { body: ping, headers: { "mcp-session-id": "no" } },
    status: 404,
    code: -32_001,
  },
  { name: "text", ask: { body: ping, headers: { "content-type": "text/plain" } }, status: 415 },
  { name: "no content type", ask: { body: ping, headers: { "content-type": "" } }, status: 415 },
  {
    name: "JSON with a character set",
    ask: { body: ping, headers: { "content-type": "Application/JSON; charset=utf-8" } },
    status: 200,
  },
  { name: "a compressed body", ask: { body: ping, headers: { "content-encoding": "gzip" } }, status: 415 },
  { name: "nothing acceptable", ask: { body: ping, headers: { accept: "text/html" } }, status: 406 },
  { name: "anything acceptable", ask: { body: ping, headers: { accept: "*/*" } }, status: 200 },
  { name: "no Accept", ask: { body: ping, headers: { accept: "" } }, status: 200 },
  {
    name: "a version that nobody speaks",
    ask: { body: ping, headers: { "mcp-protocol-version": "1900-01-01" } },
    status: 400,
    code: -32_022,
  },
  {
    name: "an old version",
    ask: { body: ping, headers: { "mcp-protocol-version": "2024-11-05" } },
    status: 200,
  },
  { name: "an unknown method of the old era", ask: { body: rpc("no/such") }, status: 200, code: -32_601 },
  {
    name: "a body that is announced too long",
    ask: { body: "x", headers: { "content-length": "16777217" } },
    status: 413,
  },
  {
    name: "two lengths",
    ask: { body: "x", headers: { "content-length": "1", "Content-Length": "2" } },
    status: 400,
  },
  {
    name: "a length and chunks",
    ask: { body: "x", headers: { "content-length": "1", "transfer-encoding": "chunked" } },
    status: 400,
  },
  { name: "no Host", ask: { body: ping, headers: { host: "" } }, status: 400 },
];

for (const { name, ask, status, code, allow } of CASES) {
  test(`${status}: ${name}`, async () => {
    const rig = laneRig();
    const answer = await asked(rig, ask);
    expect(answer.status, answer.body).toBe(status);
    if (code !== undefined) expect(JSON.parse(answer.body).error.code).toBe(code);
    if (allow !== undefined) expect(answer.headers.get("allow")).toBe(allow);
    expect(rig.rail.reservations).toEqual([]);
    expect(rig.reported).toEqual([]);
  });
}

test("our name in any case, with a dot, with its port, or in the request line", async () => {
  const rig = laneRig();
  for (const host of [
    "MCP.Capsem.Internal",
    "mcp.capsem.internal.",
    "mcp.capsem.internal:80",
    "MCP.CAPSEM.INTERNAL.:80",
  ]) {
    expect((await asked(rig, { body: ping, headers: { host } })).status, host).toBe(200);
  }
  const path = "http://mcp.capsem.internal/mcp";
  expect((await asked(rig, { body: ping, path })).status).toBe(200);
  for (const origin of ["http://mcp.capsem.internal", "HTTP://MCP.capsem.internal:80"]) {
    expect((await asked(rig, { body: ping, headers: { origin } })).status, origin).toBe(200);
  }
  expect(rig.rail.reservations).toEqual([]);
});

const FOREIGN: readonly (readonly [HttpAsk, string, number | null])[] = [
  [{ headers: { host: "other.capsem.internal" } }, "other.capsem.internal", 80],
  [{ headers: { host: "capsem.internal" } }, "capsem.internal", 80],
  [{ headers: { host: "mcp.capsem.internal:8080" } }, "mcp.capsem.internal", 8_080],
  [{ headers: { host: "mcp.capsem.internal:443" } }, "mcp.capsem.internal", 443],
  [{ headers: { host: "evil.example.com" } }, "evil.example.com", 80],
  [{ headers: { host: "mcp.capsem.internal.evil.example" } }, "mcp.capsem.internal.evil.example", 80],
  [{ headers: { host: "localhost:80" } }, "localhost", 80],
  [{ headers: { host: "192.0.2.1" } }, "192.0.2.1", 80],
  [{ headers: { host: "[::1]:80" } }, "[::1]", 80],
  [{ headers: { host: "mcp.capsem.internal@evil" } }, "", null],
  [{ headers: { host: "mcp.capsem.internal", HOST: "evil.example" } }, "", null],
  [{ headers: { host: "mcp.capsem.internal:80:80" } }, "", null],
  [{ path: "http://evil.example.com/mcp" }, "", null],
  [{ headers: { origin: "http://evil.example.com" } }, "mcp.capsem.internal", 80],
  [{ headers: { origin: "null" } }, "mcp.capsem.internal", 80],
  [{ headers: { origin: "https://mcp.capsem.internal" } }, "mcp.capsem.internal", 80],
  [{ headers: { origin: "http://mcp.capsem.internal.evil.example" } }, "mcp.capsem.internal", 80],
];

test("any other name, port or origin is refused and recorded, and reaches no conversation", async () => {
  for (const [ask, host, port] of FOREIGN) {
    const rig = laneRig();
    const answer = await asked(rig, { body: ping, ...ask });
    expect(answer.status, JSON.stringify(ask)).toBe(403);
    expect(rig.rail.clients, JSON.stringify(ask)).toEqual([]);
    expect(rig.rail.reservations).toEqual([
      { host, port, method: "POST", path: "/mcp", processName: "agent", status: 403 },
    ]);
  }
});

test("a tunnel to another host is refused and recorded", async () => {
  const rig = laneRig();
  const guest = new HttpGuest(rig);
  guest.write("CONNECT evil.example.com:443 HTTP/1.1\r\nHost: evil.example.com:443\r\n\r\n");
  expect((await guest.head()).status).toBe(403);
  await guest.over();
  expect(rig.rail.reservations).toMatchObject([{ host: "evil.example.com", port: 443, method: "CONNECT" }]);
});

test("noise that starts like HTTP gets an answer of HTTP, and its connection ends", async () => {
  const rig = laneRig();
  for (const [bytes, status] of [
    ["POST /mcp HTTP/9.9\r\n\r\n", 400],
    ["POST\t/mcp nonsense\r\n\r\n", 0],
    [`POST /mcp HTTP/1.1\r\nHost: mcp.capsem.internal\r\nX: ${"x".repeat(20_000)}\r\n\r\n`, 431],
    ["POST /mcp HTTP/1.1\r\nHost: mcp.capsem.internal\r\nContent-Length: -1\r\n\r\n", 400],
    [
      "POST /mcp HTTP/1.1\r\nHost: mcp.capsem.internal\r\nContent-Type: application/json\r\n" +
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
      400,
    ],
  ] as const) {
    const guest = new HttpGuest(rig);
    guest.write(bytes);
    if (status !== 0) expect((await guest.head()).status, bytes.slice(0, 40)).toBe(status);
    await guest.over();
    guest.stream.end();
  }
  await until(() => rig.guest.streamCount === 0, "all are over");
  expect(rig.reported).toEqual([]);
});

test("a chunked body is taken, and one that grows too long is refused", async () => {
  const rig = laneRig({ messageBytesMax: 1_000 });
  const body = JSON.stringify(call("echo", { text: "chunks" }));
  const chunked = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;
  const head = requestBytes({ headers: { "transfer-encoding": "chunked" } });
  const guest = new HttpGuest(rig);
  guest.write(head);
  guest.write(`${chunked(body.slice(0, 10))}${chunked(body.slice(10))}0\r\n\r\n`);
  expect((await guest.answer()).body).toContain("chunks");
  guest.write(head);
  guest.write(chunked("x".repeat(600)));
  guest.write(chunked("x".repeat(600)));
  expect((await guest.answer()).status).toBe(413);
  await guest.over();
  expect(rig.door.begunBytes).toBe(0);
});

test("a body that does not come is given up, and so is a connection that says nothing", async () => {
  const rig = laneRig({ bodyTimeoutMs: 20, requestWaitMs: 20, discardTimeoutMs: 20 });
  const slow = new HttpGuest(rig);
  slow.write(requestBytes({ headers: { "content-length": "10" } }));
  expect((await slow.answer()).status).toBe(408);
  const idle = new HttpGuest(rig);
  idle.write("POST /mcp HTTP/1.1\r\nHo");
  await idle.over();
  const used = new HttpGuest(rig);
  expect((await used.ask({ body: ping })).status).toBe(200);
  await used.over();
  await slow.over();
  await until(() => rig.door.http.connectionCount === 0, "all are over");
});

test("progress makes the answer an event stream, where the client takes one", async () => {
  const rig = laneRig();
  const guest = new HttpGuest(rig);
  guest.write(requestBytes({ body: call("progress") }));
  const { status, headers } = await guest.head();
  expect(status).toBe(200);
  expect(headers.get("content-type")).toBe("text/event-stream");
  const events = await guest.through('"text":"true"');
  expect(events).toMatch(/event: message\ndata: \{"jsonrpc":"2.0","method":"notifications\/progress"/);
  await guest.through("0\r\n\r\n");

  const plain = await asked(rig, { body: call("progress"), headers: { accept: "application/json" } });
  expect(plain.body).toContain('"text":"false"');
});

test("a client that takes event streams alone gets one", async () => {
  const rig = laneRig();
  const guest = new HttpGuest(rig);
  guest.write(
    requestBytes({ body: call("raw", { raw: '{\n"a":\r\n1}' }), headers: { accept: "text/event-stream" } }),
  );
  expect((await guest.head()).headers.get("content-type")).toBe("text/event-stream");
  const events = await guest.through("1}}\n\n");
  expect(events).toContain(
    'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{\ndata: "a":\ndata: 1}}\n\n',
  );
});

test("a call that takes long becomes an event stream with comments", async () => {
  const rig = laneRig({ keepAliveMs: 10 });
  const guest = new HttpGuest(rig);
  guest.write(requestBytes({ body: call("hang") }));
  expect((await guest.head()).headers.get("content-type")).toBe("text/event-stream");
  await guest.through(": keep-alive\n\n");
  await guest.through(": keep-alive\n\n");
  guest.stream.reset("cancelled");
  await until(() => rig.rail.closed.length === 1, "it is cancelled");
});

test("a client that leaves cancels its call", async () => {
  for (const leave of ["end", "reset"] as const) {
    const rig = laneRig();
    const guest = new HttpGuest(rig);
    guest.write(requestBytes({ body: call("hang") }));
    await until(() => rig.rail.running.size === 1, "it runs");
    if (leave === "end") guest.stream.end();
    else guest.stream.reset("cancelled");
    await until(() => rig.rail.cancelled.length === 1, `it is cancelled by ${leave}`);
    expect(rig.rail.clients[0]?.gone.aborted).toBe(true);
    await until(() => rig.guest.streamCount === 0, "the stream is over");
  }
});

test("requests that wait behind another on their connection are cancelled with it", async () => {
  const rig = laneRig({ keepAliveMs: 10 });
  const guest = new HttpGuest(rig);
  for (let id = 1; id <= 5; id += 1)
    guest.write(requestBytes({ body: call(id % 2 === 0 ? "progress" : "hang", {}, id) }));
  await until(() => rig.rail.received.length === 5 && rig.rail.running.size >= 3, "all run");
  guest.stream.reset("cancelled");
  await until(() => rig.rail.closed.length === 5, "all are closed");
  await until(() => rig.rail.running.size === 0, "none runs");
  expect(rig.reported).toEqual([]);
});

test("too many requests that hang are refused one by one", async () => {
  const rig = laneRig({ requestsMax: 3 });
  const guests = [1, 2, 3].map((id) => {
    const guest = new HttpGuest(rig);
    guest.write(requestBytes({ body: call("hang", {}, id) }));
    return guest;
  });
  await until(() => rig.rail.running.size > 0, "they run");
  const answer = await asked(rig, { body: rpc("ping") });
  expect(answer.status).toBe(503);
  guests[0]?.stream.reset("cancelled");
  await until(() => rig.rail.cancelled.length === 1, "one is cancelled");
  expect((await asked(rig, { body: rpc("ping") })).status).toBe(200);
});

test("1,000 abandoned clients leave nothing behind", async () => {
  const rig = laneRig();
  for (let round = 0; round < 10; round += 1) {
    const guests = Array.from({ length: 100 }, () => new HttpGuest(rig));
    for (const guest of guests) guest.write(requestBytes({ body: call("hang") }));
    await until(
      () => rig.rail.running.size >= 1 && rig.rail.received.length === 100 * (round + 1),
      "all run",
    );
    for (const guest of guests) guest.stream.reset("cancelled");
    await until(() => rig.guest.streamCount === 0 && rig.door.http.connectionCount === 0, "all are over");
  }
  expect(rig.rail.closed).toHaveLength(1_000);
  expect(rig.door.begunBytes).toBe(0);
  expect(rig.reported).toEqual([]);
});
