import { createHash } from "node:crypto";
import { compileSnapshot } from "@capsem/policy";
import { encodeMcpMessage, encodeMetaLine, McpFrameReader, type Mux, PORTS } from "@capsem/wire";
import { expect, onTestFinished, test } from "vitest";
import {
  GuestLane,
  type ProxyProcess,
  type ProxyProcessOptions,
  startProxy,
} from "./testing/proxy-process.ts";
import { ScriptedServers, tool } from "./testing/scripted-servers.ts";
import type { Message } from "./testing/test-client.ts";

const digest = (text: string) => createHash("sha256").update(text).digest("hex");

function start(options: ProxyProcessOptions = {}): ProxyProcess {
  const proxy = startProxy(options);
  onTestFinished(async () => {
    proxy.kill();
    await proxy.exited;
  });
  return proxy;
}

/** With its first rules and servers, and the builtin tools as its neighbour. */
async function serve(proxy: ProxyProcess): Promise<ScriptedServers> {
  const { service } = proxy;
  const builtin = new ScriptedServers();
  builtin.servers.set("local", { tools: [tool("echo")] });
  service.onNeed = () => proxy.grant("builtin", 1, builtin);
  const said = await proxy.ready;
  expect(said.unconfined).toEqual([]);
  await service.call("facts.credit", { add: { facts: 1_000, bytes: 1e9 }, refusing: null });
  await service.call("policy.set", { user: "", corp: "", digest: compileSnapshot({}, digest).digest });
  await service.call("servers.set", { generation: 1, servers: [], disabled: [], pins: [] });
  return builtin;
}

function newLane(): GuestLane {
  const lane = new GuestLane();
  onTestFinished(() => lane.close());
  return lane;
}

/** One framed request, and its answer. */
async function ask(mux: Mux, method: string, params: unknown): Promise<Message> {
  return JSON.parse(await askText(mux, method, params)) as Message;
}

async function askText(mux: Mux, method: string, params: unknown): Promise<string> {
  const stream = mux.open(PORTS.traffic.number, "");
  await stream.write(encodeMetaLine("agent"));
  const text = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  for (const frame of encodeMcpMessage({ streamId: 1, processName: "agent" }, text))
    await stream.write(frame);
  const reader = new McpFrameReader();
  const answers: string[] = [];
  while (answers.length === 0) {
    const chunk = await stream.read();
    if (chunk === null) throw new Error("no answer");
    reader.push(chunk, (message) => void answers.push(message.text));
  }
  stream.end();
  stream.reset("cancelled");
  return answers[0] ?? "";
}

const called = { name: "local__echo", arguments: { a: 1 } };
const answered = { result: { content: [{ text: 'local tools/call {"name":"echo","arguments":{"a":1}}' }] } };

test("a proxy that is sealed serves a guest's call, by a neighbour that it is granted when it needs one", async () => {
  const lane = newLane();
  const { lane: from, mux } = lane.expect();
  const proxy = start({ lane: { fd: lane.hostFd, start: from } });
  await serve(proxy);
  expect(await ask(await mux, "tools/call", called)).toMatchObject(answered);
  expect(proxy.service.needs).toEqual(["builtin"]);
  await expect.poll(() => proxy.service.calls.length).toBe(1);
  expect(proxy.service.calls[0]?.call).toMatchObject({ transport: "framed", process_name: "agent" });
  expect(proxy.log()).toContain('"proxy confined"');
  expect(await proxy.end()).toEqual({ code: 0, signal: null });
});

test("a lane outlives its proxy: the next one serves it, whatever the last one left in it", async () => {
  const lane = newLane();
  const first = lane.expect();
  const proxy = start({ lane: { fd: lane.hostFd, start: first.lane } });
  await serve(proxy);
  const mux = await first.mux;
  expect(await ask(mux, "tools/call", called)).toMatchObject(answered);
  proxy.kill();
  await proxy.exited;
  // The relay has not heard of it, and goes on.
  const stale = mux.open(PORTS.traffic.number, "");
  await stale.write(encodeMetaLine("agent"));
  const second = lane.expect();
  const next = start({ lane: { fd: lane.hostFd, start: second.lane } });
  await serve(next);
  expect(await ask(await second.mux, "tools/call", called)).toMatchObject(answered);
  expect(await next.end()).toEqual({ code: 0, signal: null });
  const third = lane.expect();
  const last = start({ lane: { fd: lane.hostFd, start: third.lane } });
  await serve(last);
  expect(await ask(await third.mux, "tools/call", called)).toMatchObject(answered);
});

const SPELT = '{ "content" : [{"type":"text","text":"FILL"}], "n":1.50e+1,\t"isError" :false }';
test.each(["", "x", "é🙂\\u00e9\\n "])(
  "an answer of a megabyte of %j is given and recorded as it was written",
  async (filler) => {
    const lane = newLane();
    const { lane: from, mux } = lane.expect();
    const proxy = start({ lane: { fd: lane.hostFd, start: from } });
    const builtin = await serve(proxy);
    const raw = SPELT.replace("FILL", filler.repeat(1_100_000 / Math.max(1, filler.length)));
    builtin.servers.set("local", {
      tools: [tool("echo")],
      serve: async () => ({ raw }),
    });
    const text = await askText(await mux, "tools/call", called);
    expect(text === `{"jsonrpc":"2.0","id":1,"result":${raw}}`).toBe(true);
    await expect.poll(() => proxy.service.calls.length, { timeout: 10_000 }).toBe(1);
    const [call] = proxy.service.calls;
    const bytes = Buffer.byteLength(raw);
    expect(call?.call.bytes_received).toBe(bytes);
    if (filler === "") return;
    expect(call?.bodies?.response?.bytes).toBe(bytes);
    expect(call?.bodies?.response?.text === raw).toBe(true);
  },
);

test("a host's proxy has no lane, and serves the host's calls", async () => {
  const proxy = start();
  await serve(proxy);
  const who = { requester: "cli", client: null, token_id: null, trace_id: null, turn_id: null };
  const answer = await proxy.service.call("tool.call", {
    server: "local",
    tool: "echo",
    arguments: "{}",
    ...who,
  });
  expect(answer).toMatchObject({
    result: expect.stringContaining("tools/call"),
    event_id: expect.any(String),
  });
});

test("a guest that breaks the lane's rules loses its lane, in order", async () => {
  const lane = newLane();
  const { lane: from, mux } = lane.expect();
  const proxy = start({ lane: { fd: lane.hostFd, start: from } });
  await serve(proxy);
  await mux;
  lane.socket.write(Buffer.alloc(64, 0xff));
  expect(await proxy.exited).toEqual({ code: 0, signal: null });
  expect(proxy.log()).toContain("the lane: violation");
});

test("what runs when a lane is lost has ended as cancelled, once, before its proxy is gone", async () => {
  const lane = newLane();
  const { lane: from, mux } = lane.expect();
  const proxy = start({ lane: { fd: lane.hostFd, start: from } });
  const builtin = await serve(proxy);
  builtin.servers.set("local", { tools: [tool("echo")], serve: () => new Promise(() => undefined) });
  ask(await mux, "tools/call", called).catch(() => undefined);
  await expect.poll(() => builtin.requests.length, { timeout: 10_000 }).toBe(1);
  lane.socket.write(Buffer.alloc(64, 0xff));
  expect(await proxy.exited).toEqual({ code: 0, signal: null });
  expect(proxy.service.calls.map(({ outcome }) => outcome)).toEqual(["cancelled"]);
});

test.each([
  ["nothing", ""],
  ["no JSON", "{\n"],
  ["another's plan", '{"kind":"builtin"}\n'],
  [
    "half of a lane",
    '{"kind":"proxy","scope":"x","vm":null,"descriptors":{"service":3,"grants":4,"lane":5},"allow_unconfined":false}\n',
  ],
  [
    "two descriptors that are one",
    '{"kind":"proxy","scope":"x","vm":null,"descriptors":{"service":3,"grants":3},"allow_unconfined":false}\n',
  ],
])("%s instead of a plan ends it with words", async (_, input) => {
  const proxy = start({ input });
  expect(await proxy.exited).toEqual({ code: 1, signal: null });
  expect(proxy.log()).toContain("Cannot read the proxy's plan");
});
