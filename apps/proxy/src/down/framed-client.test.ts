import { NOTIFICATIONS, notificationText, requestText } from "@capsem/mcp-protocol";
import { encodeMcpMessage } from "@capsem/wire";
import { expect, test } from "vitest";
import { FramedGuest, laneRig, until } from "./testing/lane-rig.ts";

const call = (id: unknown, name: string, args: unknown = {}, meta?: unknown) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name, arguments: args, ...(meta === undefined ? {} : { _meta: meta }) },
});
const echo = (id: unknown, text: string) => call(id, "echo", { text });
const textOf = (line: string | undefined) => {
  const { result } = JSON.parse(line?.slice(line.indexOf(" ")) ?? "{}");
  return result.content[0].text as string;
};

test("a call is answered under its stream id, and the rail sees it as it was sent", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig, "claude");
  guest.send(1, echo(7, "hi"));
  expect(await guest.lines(1)).toEqual([
    '1 {"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hi"}]}}',
  ]);
  expect(rig.rail.received[0]?.text).toBe(JSON.stringify(echo(7, "hi")));
  expect(rig.rail.clients[0]).toMatchObject({ transport: "framed", protocolHint: null });
});

test("the name of each frame counts, else that of the metadata line", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig, "agent");
  guest.send(1, echo(1, "a"));
  guest.send(3, echo(2, "b"), "git helper");
  guest.send(5, echo(3, "c"));
  await guest.took(3);
  const nobody = new FramedGuest(rig, "");
  nobody.send(1, echo(1, "d"));
  await nobody.took(1);
  expect(rig.rail.received.map(({ processName }) => processName)).toEqual([
    "agent",
    "git_helper",
    "agent",
    null,
  ]);
});

test("a payload is passed on byte for byte", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  const raw = '{ "content":[ ],"x":1.0,"big":12345678901234567890,"e":"\\u00e9\\/", "a":null }';
  guest.send(1, call(1, "raw", { raw }));
  expect((await guest.lines(1))[0]).toBe(`1 {"jsonrpc":"2.0","id":1,"result":${raw}}`);
});

test("every kind of id finds its answer", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  const ids = ['""', "0", '"\\u0061"', "12345678901234567890", "-1", '"0"'];
  ids.forEach((id, at) => {
    const text = `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"echo","arguments":{"text":"${at}"}}}`;
    guest.send(1 + 2 * at, text);
  });
  const lines = await guest.lines(ids.length);
  lines.forEach((line, at) => {
    expect(line.startsWith(`${1 + 2 * at} {"jsonrpc":"2.0","id":${ids[at]},`)).toBe(true);
    expect(textOf(line)).toBe(String(at));
  });
});

test("two clients with the same ids never see each other's answers", async () => {
  const rig = laneRig();
  const guests = Array.from({ length: 8 }, () => new FramedGuest(rig));
  guests.forEach((guest, at) => {
    for (let id = 1; id <= 20; id += 1) guest.send(2 * id - 1, echo(id, `${at}/${id}`));
  });
  for (const [at, guest] of guests.entries()) {
    const lines = await guest.lines(20);
    expect(lines.map(textOf)).toEqual(Array.from({ length: 20 }, (_, id) => `${at}/${id + 1}`));
  }
  expect(new Set(rig.rail.clients.map(({ taintKey }) => taintKey)).size).toBe(8);
});

test("progress comes as a notification, and a request of the host under an even id", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  guest.send(1, call(1, "progress", {}, { progressToken: "t" }));
  const [note] = await guest.took(2);
  expect(note).toMatchObject({ streamId: 0, isNotification: true });
  expect(note?.text).toContain('"progressToken":"t"');

  guest.send(3, call(2, "sample"));
  const asked = (await guest.took(3))[2];
  expect(asked?.streamId).toBe(2);
  expect(JSON.parse(asked?.text ?? "")).toMatchObject({ method: "sampling/createMessage", id: "ask-1" });
  guest.send(2, { jsonrpc: "2.0", id: "ask-1", result: { role: "assistant" } });
  expect(textOf((await guest.lines(4))[3])).toContain("assistant");
});

test("a cancel reaches the call, which then has no answer", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  for (const id of [0, "", 12_345]) {
    guest.send(typeof id === "number" ? (id === 0 ? 1 : 5) : 3, call(id, "hang"));
  }
  await until(() => rig.rail.running.size === 3, "three run");
  for (const requestId of [0, "", 12_345]) {
    guest.send(0, { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } });
  }
  await until(() => rig.rail.cancelled.length === 3, "three are cancelled");
  // An id that is free again may be used again.
  guest.send(7, echo(0, "again"));
  expect((await guest.lines(1)).map(textOf)).toEqual(["again"]);
});

interface Broken {
  readonly name: string;
  readonly send: (guest: FramedGuest) => void;
  /** Under which stream id the refusal comes. */
  readonly under: number;
}
const frame = (id: string, flags: string, text: string) => {
  const payload = Buffer.from(text).toString("hex");
  const length = (16 + text.length).toString(16).padStart(8, "0");
  return `${length} 4d43 01 10 ${id} ${flags} 0000 ${text.length.toString(16).padStart(8, "0")} ${payload}`;
};
const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
const note = '{"jsonrpc":"2.0","method":"notifications/initialized"}';

const BROKEN: readonly Broken[] = [
  {
    name: "wrong magic",
    send: (guest) => guest.write("00000010 4d44 01 10 00000001 0000 0000 00000000"),
    under: 1,
  },
  {
    name: "wrong version",
    send: (guest) => guest.write(frame("00000005", "0000", ping).replace("4d43 01", "4d43 02")),
    under: 5,
  },
  { name: "wrong flags", send: (guest) => guest.write(frame("00000005", "0004", ping)), under: 5 },
  { name: "a length beyond the limit", send: (guest) => guest.write("00101001 4d43"), under: 1 },
  { name: "a length too small", send: (guest) => guest.write("0000000f 4d43"), under: 1 },
  { name: "a request on stream 0", send: (guest) => guest.write(frame("00000000", "0000", ping)), under: 1 },
  {
    name: "a notification on stream 1",
    send: (guest) => guest.write(frame("00000001", "0001", note)),
    under: 1,
  },
  {
    name: "a request with the notification flag",
    send: (guest) => guest.write(frame("00000000", "0001", ping)),
    under: 1,
  },
  {
    name: "a notification without the flag",
    send: (guest) => guest.write(frame("00000001", "0000", note)),
    under: 1,
  },
  {
    name: "an even id that was not asked",
    send: (guest) => guest.send(2, { jsonrpc: "2.0", id: 1, result: {} }),
    under: 1,
  },
  {
    name: "an answer under an odd id",
    send: (guest) => guest.send(3, { jsonrpc: "2.0", id: 1, result: {} }),
    under: 3,
  },
  {
    name: "the same id again",
    send: (guest) => {
      guest.send(9, echo(1, "x"));
      guest.send(9, echo(2, "y"));
    },
    under: 9,
  },
  {
    name: "a lower id",
    send: (guest) => {
      guest.send(9, echo(1, "x"));
      guest.send(7, echo(2, "y"));
    },
    under: 7,
  },
  {
    name: "a payload that is not UTF-8",
    send: (guest) => guest.write("00000011 4d43 01 10 00000001 0000 0000 00000001 ff"),
    under: 1,
  },
  {
    name: "an end within a frame",
    send: (guest) => {
      guest.write("00000012 4d43 01 10 00000001 0000 0000 00000002 7b");
      guest.stream.end();
    },
    under: 1,
  },
  {
    name: "a frame behind the end",
    send: (guest) => guest.write(`00000000 ${frame("00000001", "0000", ping)}`),
    under: 1,
  },
];

for (const { name, send, under } of BROKEN) {
  test(`refused, and its stream ends: ${name}`, async () => {
    const rig = laneRig();
    const other = new FramedGuest(rig);
    other.send(1, call(1, "hang"));
    const guest = new FramedGuest(rig);
    send(guest);
    expect(await guest.ended).toBe("end");
    const last = guest.messages.at(-1);
    expect(last?.streamId).toBe(under);
    expect(JSON.parse(last?.text ?? "{}")).toMatchObject({ id: null, error: { code: -32_600 } });
    guest.stream.end();
    await until(() => rig.guest.streamCount === 1, "its stream is over");

    // No harm to the other, and the next one is served.
    expect(rig.rail.running.size).toBe(1);
    other.send(3, echo(2, "still here"));
    expect((await other.lines(1)).map(textOf)).toEqual(["still here"]);
    expect(rig.reported).toEqual([]);
  });
}

test("an answer to what was asked must have its id", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  guest.send(1, call(1, "sample"));
  await guest.took(1);
  guest.send(2, { jsonrpc: "2.0", id: "other", result: {} });
  expect(await guest.ended).toBe("end");
  expect(rig.rail.methods()).toEqual(["tools/call"]);
});

test("a payload that is no message is answered, and the stream goes on", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  guest.send(1, "{nonsense");
  guest.send(3, "[]");
  guest.send(5, '{"jsonrpc":"1.0","id":"x","method":"ping"}');
  guest.send(7, "");
  guest.send(0, "{nonsense");
  guest.send(9, echo(1, "fine"));
  const lines = await guest.lines(5);
  const errors = lines.slice(0, 4).map((line) => {
    const at = line.indexOf(" ");
    const { id, error } = JSON.parse(line.slice(at));
    return [line.slice(0, at), id, error.code];
  });
  expect(errors).toEqual([
    ["1", null, -32_700],
    ["3", null, -32_600],
    ["5", "x", -32_600],
    ["7", null, -32_700],
  ]);
  expect(textOf(lines[4])).toBe("fine");
});

test("an id that is not answered yet cannot be used for another request", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  guest.send(1, call("a", "hang"));
  guest.send(3, '{"jsonrpc":"2.0","id":"\\u0061","method":"ping"}');
  const [line] = await guest.lines(1);
  expect(line).toMatch(/^3 .*"id":"\\u0061".*-32600/);
  expect(rig.rail.running.size).toBe(1);
});

test("a client with too many requests open is refused one by one, and its cancels still come in", async () => {
  const rig = laneRig({ requestsMax: 4 });
  const guest = new FramedGuest(rig);
  for (let id = 1; id <= 6; id += 1) guest.send(2 * id - 1, call(id, "hang"));
  const lines = await guest.lines(2);
  for (const line of lines) expect(line).toContain("-32603");
  guest.send(0, { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
  await until(() => rig.rail.running.size === 3, "one is cancelled");
  guest.send(13, echo(7, "room again"));
  expect(textOf((await guest.lines(3))[2])).toBe("room again");
});

test("a client that has said all gets what runs, then the end", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  guest.send(1, call(1, "large", { chars: 400_000 }));
  guest.write("00000000");
  guest.stream.end();
  expect(await guest.ended).toBe("end");
  expect(guest.messages).toHaveLength(1);
  await until(() => rig.rail.closed.length === 1, "the conversation is closed");
  await until(() => rig.guest.streamCount === 0, "the stream is over");
});

test("what hangs does not keep a client that has said all", async () => {
  const rig = laneRig({ lastAnswersTimeoutMs: 20 });
  const guest = new FramedGuest(rig);
  guest.send(1, call(1, "hang"));
  guest.stream.end();
  expect(await guest.ended).toBe("end");
  expect(rig.rail.closed).toHaveLength(1);
});

test("a client that is gone takes its calls with it", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  guest.send(1, call(1, "hang"));
  await until(() => rig.rail.running.size === 1, "it runs");
  guest.stream.reset("cancelled");
  await until(() => rig.rail.cancelled.length === 1, "it is cancelled");
  expect(rig.rail.clients[0]?.gone.aborted).toBe(true);
  expect(await rig.rail.clients[0]?.send(note, null)).toBe(false);
});

test("a client that takes nothing is not read, and goes on when it takes again", async () => {
  const rig = laneRig({ unsentBytesHigh: 1_000_000 });
  const guest = rig.guest.open(5002, "");
  const { encodeMetaLine } = await import("@capsem/wire");
  await guest.write(encodeMetaLine("slow"));
  let sent = 0;
  const sending = (async () => {
    for (; sent < 40; sent += 1) {
      const text = JSON.stringify(call(sent, "large", { chars: 100_000, padding: "p".repeat(50_000) }));
      for (const one of encodeMcpMessage({ streamId: 2 * sent + 1, processName: "" }, text)) {
        await guest.write(one);
      }
    }
  })();
  await until(() => rig.rail.received.length >= 10, "some came");
  for (let turn = 0; turn < 200; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  expect(rig.rail.received.length).toBeLessThan(25);

  let bytes = 0;
  const reading = (async () => {
    for (let chunk = await guest.read(); chunk !== null; chunk = await guest.read()) bytes += chunk.length;
  })();
  await sending;
  guest.end();
  await reading;
  expect(rig.rail.received).toHaveLength(40);
  expect(bytes).toBeGreaterThan(4_000_000);
});

test("messages that begin and do not end are bounded over all clients of a VM", async () => {
  const rig = laneRig({ begunBytesMax: 1_500_000 });
  const frames = encodeMcpMessage({ streamId: 1, processName: "" }, "x".repeat(1_048_577));
  const first = new FramedGuest(rig);
  const second = new FramedGuest(rig);
  void first.stream.write(frames[0] ?? new Uint8Array());
  await until(() => rig.door.begunBytes > 1_000_000, "one has begun");
  void second.stream.write(frames[0] ?? new Uint8Array());
  expect(await second.ended).toBe("end");
  expect(second.messages[0]?.text).toContain("too long together");
  first.stream.reset("cancelled");
  await until(() => rig.door.begunBytes === 0, "the room is given back");
});

test("a message of 16 MiB goes both ways", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  const text = "y".repeat(16_700_000);
  guest.send(1, echo(1, text));
  expect(textOf((await guest.lines(1))[0])).toHaveLength(text.length);
});

test("an answer beyond 16 MiB becomes an error, not silence", async () => {
  const rig = laneRig();
  const guest = new FramedGuest(rig);
  guest.send(1, call(1, "large", { chars: 16_777_216 }));
  expect((await guest.lines(1))[0]).toMatch(/^1 .*-32603.*longer than 16 MiB/);
});

test("1,000 abandoned clients leave nothing behind", async () => {
  const rig = laneRig();
  for (let round = 0; round < 10; round += 1) {
    const guests = Array.from({ length: 100 }, () => new FramedGuest(rig));
    for (const guest of guests) guest.send(1, call(1, "hang"));
    await until(() => rig.rail.running.size === 100, "all run");
    for (const [at, guest] of guests.entries()) {
      if (at % 2 === 0) guest.stream.reset("cancelled");
      else guest.write("00000000 ff");
    }
    for (const guest of guests) await guest.ended;
    for (const guest of guests) guest.stream.end();
    await until(() => rig.rail.running.size === 0 && rig.guest.streamCount === 0, "all are over");
  }
  expect(rig.rail.closed).toHaveLength(1_000);
  expect(rig.door.begunBytes).toBe(0);
  expect(rig.reported).toEqual([]);
});

test("what a client is no longer asked leaves room for the next question, and its late answer is dropped once", async () => {
  const rig = laneRig({ hostRequestsMax: 2 });
  const guest = new FramedGuest(rig);
  guest.send(1, echo(1, "here"));
  await guest.took(1);
  const [client] = rig.rail.clients;
  for (let id = 1; id <= 8; id += 1) {
    expect(await client?.send(requestText(String(id), "roots/list"), null)).toBe(true);
    await client?.send(notificationText(NOTIFICATIONS.cancelled, `{"requestId":${id}}`), null);
  }
  const before = rig.rail.received.length;
  guest.send(2, { jsonrpc: "2.0", id: 1, result: { roots: [] } });
  guest.send(3, echo(2, "still here"));
  const lines = await guest.lines(18);
  expect(textOf(lines.at(-1))).toBe("still here");
  expect(rig.rail.methods().slice(before)).toEqual(["tools/call"]);
  guest.send(2, { jsonrpc: "2.0", id: 1, result: { roots: [] } });
  expect(await guest.ended).toBe("end");
});
