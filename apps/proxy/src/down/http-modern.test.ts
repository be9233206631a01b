import { META_KEYS } from "@capsem/mcp-protocol";
import { expect, test } from "vitest";
import { type HttpAsk, HttpGuest, requestBytes } from "./testing/http-guest.ts";
import { laneRig, until } from "./testing/lane-rig.ts";

const VERSION = "2026-07-28";
const META = { [META_KEYS.protocolVersion]: VERSION, [META_KEYS.clientCapabilities]: {} };
const modern = (method: string, params: object = {}, meta: object = META) => ({
  jsonrpc: "2.0",
  id: 1,
  method,
  params: { ...params, _meta: meta },
});
const headers = (method: string, name?: string): Record<string, string> => ({
  "mcp-protocol-version": VERSION,
  "mcp-method": method,
  ...(name === undefined ? {} : { "mcp-name": name }),
});
const callBody = modern("tools/call", { name: "echo", arguments: { text: "hi" } });
const callHeaders = headers("tools/call", "echo");

interface Case {
  readonly name: string;
  readonly ask: HttpAsk;
  readonly status: number;
  readonly code?: number;
}
const without = (name: string) => ({ ...callHeaders, [name]: "" });

const CASES: readonly Case[] = [
  { name: "a call that says all", ask: { body: callBody, headers: callHeaders }, status: 200 },
  {
    name: "a list, which has no name",
    ask: { body: modern("tools/list"), headers: headers("tools/list") },
    status: 200,
  },
  {
    name: "discover",
    ask: { body: modern("server/discover"), headers: headers("server/discover") },
    status: 200,
  },
  {
    name: "a name in Base64",
    ask: {
      body: modern("tools/call", { name: "ecüo" }),
      headers: headers("tools/call", `=?base64?${Buffer.from("ecüo").toString("base64")}?=`),
    },
    status: 200,
  },
  {
    name: "no version header",
    ask: { body: callBody, headers: without("mcp-protocol-version") },
    status: 400,
    code: -32_020,
  },
  {
    name: "no method header",
    ask: { body: callBody, headers: without("mcp-method") },
    status: 400,
    code: -32_020,
  },
  {
    name: "no name header",
    ask: { body: callBody, headers: without("mcp-name") },
    status: 400,
    code: -32_020,
  },
  {
    name: "another version in the header",
    ask: { body: callBody, headers: { ...callHeaders, "mcp-protocol-version": "2025-11-25" } },
    status: 400,
    code: -32_020,
  },
  {
    name: "another method in the header",
    ask: { body: callBody, headers: { ...callHeaders, "mcp-method": "tools/list" } },
    status: 400,
    code: -32_020,
  },
  {
    name: "another name in the header",
    ask: { body: callBody, headers: { ...callHeaders, "mcp-name": "other" } },
    status: 400,
    code: -32_020,
  },
  {
    name: "a name in bad Base64",
    ask: { body: callBody, headers: { ...callHeaders, "mcp-name": "=?base64?e?=" } },
    status: 400,
    code: -32_020,
  },
  {
    name: "a name that is no UTF-8",
    ask: { body: callBody, headers: { ...callHeaders, "mcp-name": "=?base64?/w==?=" } },
    status: 400,
    code: -32_020,
  },
  {
    name: "another URI in the header",
    ask: { body: modern("resources/read", { uri: "a://b" }), headers: headers("resources/read", "a://c") },
    status: 400,
    code: -32_020,
  },
  {
    name: "a header of the new era and a body of the old",
    ask: { body: { jsonrpc: "2.0", id: 1, method: "tools/list" }, headers: headers("tools/list") },
    status: 400,
    code: -32_602,
  },
  {
    name: "no capabilities",
    ask: {
      body: modern("tools/list", {}, { [META_KEYS.protocolVersion]: VERSION }),
      headers: headers("tools/list"),
    },
    status: 400,
    code: -32_602,
  },
  {
    name: "initialize under a header of the new era",
    ask: {
      body: { jsonrpc: "2.0", id: 1, method: "initialize", params: {} },
      headers: headers("initialize"),
    },
    status: 400,
    code: -32_020,
  },
  {
    name: "a version of tomorrow",
    ask: {
      body: modern("tools/list", {}, { ...META, [META_KEYS.protocolVersion]: "2027-01-01" }),
      headers: { ...headers("tools/list"), "mcp-protocol-version": "2027-01-01" },
    },
    status: 400,
    code: -32_022,
  },
  {
    name: "a method of the old era",
    ask: { body: modern("ping"), headers: headers("ping") },
    status: 404,
    code: -32_601,
  },
  {
    name: "initialize with a claim of the new era",
    ask: { body: modern("initialize"), headers: headers("initialize") },
    status: 404,
    code: -32_601,
  },
  {
    name: "a method that never was",
    ask: { body: modern("no/such"), headers: headers("no/such") },
    status: 404,
    code: -32_601,
  },
  {
    name: "an answer",
    ask: { body: { jsonrpc: "2.0", id: 1, result: {} }, headers: headers("x") },
    status: 400,
    code: -32_600,
  },
  {
    name: "a notification",
    ask: { body: { jsonrpc: "2.0", method: "notifications/x" }, headers: headers("notifications/x") },
    status: 202,
  },
  {
    name: "_meta twice",
    ask: { body: '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{},"_meta":{}}}' },
    status: 400,
    code: -32_600,
  },
  { name: "GET", ask: { method: "GET", headers: headers("x") }, status: 405 },
];

for (const { name, ask, status, code } of CASES) {
  test(`${status}: ${name}`, async () => {
    const rig = laneRig();
    const guest = new HttpGuest(rig);
    const answer = await guest.ask(ask);
    expect(answer.status, answer.body).toBe(status);
    if (code === undefined) return;
    const { id, error } = JSON.parse(answer.body);
    expect(error.code, error.message).toBe(code);
    expect(id).toBe(code === -32_600 ? null : 1);
    // What a header gets wrong reaches nobody.
    if (status === 400) expect(rig.rail.clients).toEqual([]);
  });
}

test("a request of the new era has no session, whatever its headers say", async () => {
  const rig = laneRig();
  const guest = new HttpGuest(rig);
  const answer = await guest.ask({ body: callBody, headers: { ...callHeaders, "mcp-session-id": "old" } });
  expect(answer.status).toBe(200);
  expect(answer.headers.has("mcp-session-id")).toBe(false);
  expect(rig.rail.clients[0]).toMatchObject({ protocolHint: VERSION, taintKey: "http" });
});

test("an unsupported version names those that are", async () => {
  const rig = laneRig();
  const body = modern("tools/list", {}, { ...META, [META_KEYS.protocolVersion]: "2027-01-01" });
  const guest = new HttpGuest(rig);
  const answer = await guest.ask({
    body,
    headers: { ...headers("tools/list"), "mcp-protocol-version": "2027-01-01" },
  });
  const { data } = JSON.parse(answer.body).error;
  expect(data.requested).toBe("2027-01-01");
  // What `server/discover` says: the others are agreed on by a handshake.
  expect(data.supported).toEqual([VERSION]);
});

test("a version that is none is first of all another one than the header says", async () => {
  const rig = laneRig();
  const body = modern("tools/list", {}, { ...META, [META_KEYS.protocolVersion]: "v999.0.0" });
  const answer = await new HttpGuest(rig).ask({ body, headers: headers("tools/list") });
  expect(answer.status).toBe(400);
  expect(JSON.parse(answer.body).error.code).toBe(-32020);
});

test("a subscription is a stream that goes on until the client closes it", async () => {
  const rig = laneRig({ keepAliveMs: 10 });
  const guest = new HttpGuest(rig);
  const listen = modern("subscriptions/listen", { notifications: {} });
  guest.write(requestBytes({ body: listen, headers: headers("subscriptions/listen") }));
  expect((await guest.head()).headers.get("content-type")).toBe("text/event-stream");
  await guest.through("notifications/subscriptions/acknowledged");
  await guest.through(": keep-alive");
  guest.stream.end();
  await until(() => rig.rail.closed.length === 1 && rig.rail.cancelled.length === 1, "it is over");
});
