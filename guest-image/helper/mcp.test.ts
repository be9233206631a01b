import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { MuxStream } from "@capsem/wire";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { McpMessage } from "../../packages/wire/src/mcp-frame.ts";
import { encodeMcpEnd, encodeMcpMessage } from "../../packages/wire/src/mcp-frame.ts";
import { McpFrameReader } from "../../packages/wire/src/mcp-frame-reader.ts";
import { skipReason } from "./rig.ts";
import { Arrivals, type TestLane, TrafficRig } from "./testing/traffic-rig.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

const reason = skipReason();
if (reason !== undefined) console.log(`skipped: thin client of tool calls: ${reason}`);

const LOST = "the host's proxy was lost; the call may have run";

/** The far end of one client: whole messages come, and messages go. */
class Session {
  readonly messages = new Arrivals<McpMessage>();
  readonly stream: MuxStream;
  hasEnded = false;
  meta = "";

  constructor(stream: MuxStream) {
    this.stream = stream;
    this.#read().catch(() => undefined);
  }

  async #read(): Promise<void> {
    const reader = new McpFrameReader();
    let head = Buffer.alloc(0);
    for (let chunk = await this.stream.read(); chunk !== null; chunk = await this.stream.read()) {
      if (this.meta === "") {
        head = Buffer.concat([head, chunk]);
        const end = head.indexOf(10);
        if (end < 0) continue;
        this.meta = head.toString("utf8", 1, end);
        chunk = head.subarray(end + 1);
      }
      reader.push(chunk, (message) => this.messages.put(message));
      this.hasEnded = reader.hasEnded;
    }
  }

  async send(streamId: number, text: string): Promise<void> {
    for (const frame of encodeMcpMessage({ streamId, processName: "" }, text)) await this.stream.write(frame);
  }
}

describe.skipIf(reason !== undefined)("the thin client", () => {
  let rig: TrafficRig;
  const children: ChildProcess[] = [];
  beforeAll(() => {
    rig = new TrafficRig();
  });
  beforeEach(() => rig.start());
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill("SIGKILL");
    await rig.stop();
  });
  afterAll(() => rig.remove());

  function start(env: NodeJS.ProcessEnv = {}) {
    const child = rig.spawnClient(env);
    children.push(child);
    const lines = new Arrivals<string>();
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on("line", (line) => lines.put(line));
    child.stdin?.on("error", () => undefined);
    return {
      child,
      say: (line: string) => child.stdin?.write(`${line}\n`),
      line: () => lines.next(),
      exit: once(child, "exit"),
    };
  }

  async function joined(lane: TestLane): Promise<Session> {
    return new Session(await lane.streams.next());
  }

  const request = (id: string | number, method = "tools/call", params: object = {}) =>
    JSON.stringify({ jsonrpc: "2.0", id, method, params });
  const answer = (id: string | number, result: unknown = {}) =>
    JSON.stringify({ jsonrpc: "2.0", id, result });

  test("requests have odd, rising ids and the name of who started it, and answers are lines", async () => {
    const client = start({ CAPSEM_PROCESS_NAME: "my agent\n" });
    client.say(request("a"));
    client.say("");
    client.say(`${request(0)}\r`);
    client.say('  {"jsonrpc":"2.0","method":"notifications/x"}');
    const lane = await rig.firstLane();
    const session = await joined(lane);
    const seen = [
      await session.messages.next(),
      await session.messages.next(),
      await session.messages.next(),
    ];
    expect(seen.map(({ streamId, processName, text }) => [streamId, processName, text])).toEqual([
      [1, "my_agent_", request("a")],
      [3, "my_agent_", request(0)],
      [0, "my_agent_", '  {"jsonrpc":"2.0","method":"notifications/x"}'],
    ]);
    await session.send(3, answer(0));
    await session.send(0, '{"jsonrpc":"2.0",\n"method":"notifications/y"}');
    await session.send(1, answer("a", { number: 1.0, deep: [{}] }));
    expect(await client.line()).toBe(answer(0));
    expect(await client.line()).toBe('{"jsonrpc":"2.0", "method":"notifications/y"}');
    expect(await client.line()).toBe(answer("a", { number: 1.0, deep: [{}] }));
  });

  test("without a name of its own it has that of its parent, and so has its connection", async () => {
    const client = start();
    client.say(request(1));
    const session = await joined(await rig.firstLane());
    const { processName } = await session.messages.next();
    expect(processName.length).toBeGreaterThan(0);
    expect(processName).not.toContain("capsem");
    expect(session.meta).toBe(`CAPSEM_META:${processName}`);
  });

  test("a request of the host is answered on its own id, whatever the order", async () => {
    const client = start();
    client.say(request(1));
    const session = await joined(await rig.firstLane());
    await session.messages.next();
    await session.send(2, request("h-1", "sampling/createMessage"));
    await session.send(4, request(7, "elicitation/create"));
    expect(JSON.parse(await client.line())).toMatchObject({ id: "h-1" });
    expect(JSON.parse(await client.line())).toMatchObject({ id: 7 });
    client.say(answer(7));
    client.say(answer("nobody asked"));
    client.say(answer("h-1"));
    client.say(answer("h-1"));
    client.say(request(2));
    const seen = [
      await session.messages.next(),
      await session.messages.next(),
      await session.messages.next(),
    ];
    expect(seen.map(({ streamId, text }) => [streamId, text])).toEqual([
      [4, answer(7)],
      [2, answer("h-1")],
      [3, request(2)],
    ]);
  });

  const faults: readonly (readonly [string, number])[] = [
    ["{", -32700],
    ["nonsense", -32700],
    ['{"a":1,}', -32700],
    ['{"id":01,"method":"x"}', -32700],
    ['{"id":1,"method":"x"} x', -32700],
    ['{"id":1,"method":"a\u0001"}', -32700],
    ['["\\x"]', -32700],
    ['[{"id":1,"method":"x"}]', -32600],
    ["17", -32600],
    ["{}", -32600],
    ['{"id":null,"method":"x"}', -32600],
    ['{"id":{},"method":"x"}', -32600],
    ['{"id":1,"method":7}', -32600],
    [`{"id":"${"x".repeat(2_000)}","method":"x"}`, -32600],
    [`${"[".repeat(600)}${"]".repeat(600)}`, -32700],
  ];
  test("a line that is no message is answered here, and the next one is taken", async () => {
    const client = start();
    for (const [line, code] of faults) {
      client.say(line);
      expect(JSON.parse(await client.line()), line).toMatchObject({ id: null, error: { code } });
    }
    // Nobody was asked for a lane yet.
    expect(rig.portCount).toBe(0);
    client.say(request(1));
    const session = await joined(await rig.firstLane());
    expect((await session.messages.next()).text).toBe(request(1));
  });

  test("a message of 16 MiB goes each way, and a longer line is refused alone", async () => {
    const client = start();
    const body = "ü".repeat(8_388_608 - 100);
    client.say(request(1, "tools/call", { body }));
    const session = await joined(await rig.firstLane());
    const { text } = await session.messages.next();
    expect(text === request(1, "tools/call", { body })).toBe(true);
    void session.send(1, answer(1, { body }));
    expect((await client.line()) === answer(1, { body })).toBe(true);
    client.say("x".repeat(17_000_000));
    expect(JSON.parse(await client.line())).toMatchObject({ id: null, error: { code: -32600 } });
    client.say(request(2));
    expect((await session.messages.next()).text).toBe(request(2));
  });

  test("a lost proxy fails what is pending once, and the next one is told who the client is first", async () => {
    const client = start();
    const initialize = request("init", "initialize", { protocolVersion: "2025-11-25" });
    const initialized = '{"jsonrpc":"2.0","method":"notifications/initialized"}';
    client.say(initialize);
    const first = await rig.firstLane();
    const session = await joined(first);
    await session.messages.next();
    await session.send(1, answer("init"));
    await client.line();
    client.say(initialized);
    client.say(request(5));
    client.say(request("six"));
    for (let at = 0; at < 3; at++) await session.messages.next();
    const second = await rig.lane(first.port);
    expect(JSON.parse(await client.line())).toEqual({
      jsonrpc: "2.0",
      id: 5,
      error: { code: -32603, message: LOST },
    });
    expect(JSON.parse(await client.line())).toEqual({
      jsonrpc: "2.0",
      id: "six",
      error: { code: -32603, message: LOST },
    });
    client.say(request(7));
    const next = await joined(second);
    expect((await next.messages.next()).text).toBe(initialize);
    await next.send(1, answer("init"));
    // Its answer is not the client's.
    expect((await next.messages.next()).text).toBe(initialized);
    const call = await next.messages.next();
    expect([call.streamId, call.text]).toEqual([3, request(7)]);
    await next.send(3, answer(7));
    expect(await client.line()).toBe(answer(7));
  });

  test("a proxy that does not take the client again fails that call alone", async () => {
    const client = start();
    client.say(request("init", "initialize"));
    const first = await rig.firstLane();
    let session = await joined(first);
    await session.messages.next();
    await session.send(1, answer("init"));
    await client.line();
    client.say(request(0));
    await session.messages.next();
    session.stream.reset("cancelled");
    expect(JSON.parse(await client.line())).toMatchObject({ id: 0, error: { message: LOST } });
    client.say(request(1));
    session = await joined(first);
    await session.messages.next();
    session.stream.reset("cancelled");
    expect(JSON.parse(await client.line())).toMatchObject({ id: 1, error: { code: -32603 } });
    client.say(request(2));
    session = await joined(first);
    await session.messages.next();
    await session.send(1, answer("init"));
    expect((await session.messages.next()).text).toBe(request(2));
  });

  test("without a relay a call is answered and the client lives", async () => {
    await rig.stopRelay();
    const client = start();
    client.say(request(1));
    expect(JSON.parse(await client.line())).toMatchObject({ id: 1, error: { code: -32603 } });
    await rig.startRelay();
    client.say(request(2));
    const session = await joined(await rig.firstLane());
    expect((await session.messages.next()).text).toBe(request(2));
  });

  test("at the end of its input it says so, passes on what is still answered, and ends with 0", async () => {
    const client = start();
    client.say(request(1));
    client.child.stdin?.end(request(2));
    const session = await joined(await rig.firstLane());
    await session.messages.next();
    expect((await session.messages.next()).text).toBe(request(2));
    await session.send(1, answer(1));
    expect(await client.line()).toBe(answer(1));
    await session.send(3, answer(2));
    expect(await client.line()).toBe(answer(2));
    expect(await client.exit).toEqual([0, null]);
    await expect.poll(() => session.hasEnded, SOON).toBe(true);
  });

  test("a call that was cancelled is not waited for", async () => {
    const client = start();
    client.say(request(1));
    client.say('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"x","requestId":1}}');
    const session = await joined(await rig.firstLane());
    await session.messages.next();
    await session.messages.next();
    client.child.stdin?.end();
    expect(await client.exit).toEqual([0, null]);
  });

  test("an empty input opens no lane", async () => {
    const client = start();
    client.child.stdin?.end();
    expect(await client.exit).toEqual([0, null]);
    expect(rig.portCount).toBe(0);
  });

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    test(`${signal} ends it at once, in the middle of a call`, async () => {
      const client = start();
      client.say(request(1));
      const session = await joined(await rig.firstLane());
      await session.messages.next();
      client.child.kill(signal);
      expect(await client.exit).toEqual([0, null]);
      await session.stream.closed;
    });
  }

  test("the end of whoever reads its answers ends it", async () => {
    const client = start();
    client.say(request(1));
    const session = await joined(await rig.firstLane());
    await session.messages.next();
    client.child.stdout?.destroy();
    expect(await client.exit).toEqual([0, null]);
  });

  test("many calls at once come back each to its own", async () => {
    const client = start();
    for (let id = 0; id < 2_000; id++) client.say(request(id));
    const session = await joined(await rig.firstLane());
    const seen = [];
    for (let id = 0; id < 2_000; id++) seen.push(await session.messages.next());
    for (const { streamId, text } of seen.reverse()) void session.send(streamId, answer(JSON.parse(text).id));
    const ids = [];
    for (let id = 0; id < 2_000; id++) ids.push(JSON.parse(await client.line()).id);
    expect(ids).toEqual(Array.from({ length: 2_000 }, (_, at) => 1_999 - at));
  });

  const bad: readonly (readonly [string, string])[] = [
    ["a wrong magic", "000000120000011000000001000000000000000278780000"],
    ["a wrong version", "000000124d43021000000001000000000000000278780000"],
    ["a wrong header length", "000000124d43011100000001000000000000000278780000"],
    ["an unknown flag", "000000124d43011000000001000400000000000278780000"],
    ["a length below the header", "0000000f4d430110000000010000000000000002"],
    ["a length over the ceiling", "001010014d430110000000010000000000000002"],
    ["lengths that do not add up", "000000124d43011000000001000000000000000378780000"],
    ["an answer to what was never asked", "000000124d430110000000630000000000000002 7b7d".replace(" ", "")],
    ["a notification with an id", "000000124d4301100000000100010000000000027b7d"],
    ["a message on id 0 that is none", "000000124d4301100000000000000000000000027b7d"],
    ["a request that is none", "000000124d4301100000000200000000000000027b7d"],
  ];
  for (const [what, hex] of bad) {
    test(`${what}: the calls fail, the client goes on with another connection`, async () => {
      const client = start();
      client.say(request(1));
      const lane = await rig.firstLane();
      const session = await joined(lane);
      await session.messages.next();
      await session.stream.write(Buffer.from(hex, "hex"));
      expect(JSON.parse(await client.line())).toMatchObject({
        id: 1,
        error: { code: -32603, message: LOST },
      });
      client.say(request(2));
      expect((await (await joined(lane)).messages.next()).text).toBe(request(2));
    });
  }

  test("the host's end of a session is a loss like any other", async () => {
    const client = start();
    client.say(request(1));
    const session = await joined(await rig.firstLane());
    await session.messages.next();
    await session.stream.write(encodeMcpEnd());
    expect(JSON.parse(await client.line())).toMatchObject({ id: 1, error: { message: LOST } });
  });

  test("it takes no argument", async () => {
    const child = spawn(rig.client, ["--help"], { stdio: ["ignore", "ignore", "pipe"] });
    const [said] = (await once(child.stderr, "data")) as [Buffer];
    expect(said.toString()).toContain("usage: capsem-mcp-server");
    expect((await once(child, "exit"))[0]).toBe(2);
  });
});
