import { Bug, Failure } from "@capsem/base";
import { expect, test } from "vitest";
import {
  decodeGuestMessage,
  decodeHostMessage,
  encodeGuestMessage,
  encodeHostMessage,
  guestControlPort,
  hostControlPort,
} from "./control-codec.ts";
import { createMemoryLink } from "./memory-link.ts";
import type { GuestMessage, HostMessage } from "./message-table.ts";
import { encodeMessagePack } from "./msgpack.ts";
import { createMux } from "./mux.ts";
import type { MuxStream } from "./types.ts";

const PING: HostMessage = { name: "ping", body: { sequence: 1, clock_ms: 1_700_000_000_000.5 } };
const ACK: GuestMessage = { name: "ack", body: { id: "r1" } };

function kindOf(work: () => unknown): string {
  try {
    work();
    return "none";
  } catch (thrown) {
    if (thrown instanceof Bug) return "bug";
    return thrown instanceof Failure ? thrown.kind : "not a failure";
  }
}

async function streams(): Promise<{ host: MuxStream; guest: MuxStream }> {
  const { a, b } = createMemoryLink();
  const opened: MuxStream[] = [];
  const host = createMux({ role: "host", transport: a, onOpen: (stream) => opened.push(stream) });
  const guest = createMux({ role: "guest", transport: b, onOpen: () => undefined });
  a.onChunk((chunk) => host.receive(chunk));
  b.onChunk((chunk) => guest.receive(chunk));
  const stream = guest.open(5000, "");
  await new Promise((resolve) => setImmediate(resolve));
  const peer = opened[0];
  if (peer === undefined) throw new Bug("no stream was opened");
  return { host: peer, guest: stream };
}

test("each side decodes what the other encodes", () => {
  expect(decodeHostMessage(encodeHostMessage(PING))).toEqual(PING);
  expect(decodeGuestMessage(encodeGuestMessage(ACK))).toEqual(ACK);
});

test("the bytes of a ping are these", () => {
  const hex = Buffer.from(encodeHostMessage({ name: "ping", body: { sequence: 1 } })).toString("hex");
  expect(hex).toBe(`9208${"81"}a8${Buffer.from("sequence").toString("hex")}01`);
});

const BAD: [string, unknown, string][] = [
  ["no pair", { number: 8 }, "bad_message"],
  ["a pair of three", [69, { id: "a" }, 1], "bad_message"],
  ["a number that is a string", ["69", { id: "a" }], "bad_message"],
  ["an unknown number", [99, {}], "unknown_message"],
  ["a reserved number", [71, {}], "unknown_message"],
  ["a host message from the guest", [8, { sequence: 1 }], "wrong_direction"],
  ["a body that is nil", [69, null], "bad_message"],
  ["a body without a field", [69, {}], "bad_message"],
  ["a body with a field of another type", [69, { id: 1 }], "bad_message"],
  ["a body with a field too many", [69, { id: "a", more: 1 }], "bad_message"],
  ["a fraction for a count", [68, { sequence: 1.5, clock_ms: 1 }], "bad_message"],
  ["a clock that is not a number", [68, { sequence: 1, clock_ms: Number.NaN }], "bad_message"],
  ["more than the limit", [72, { id: "a", kind: "internal", message: "x".repeat(61_440) }], "too_large"],
];
for (const [name, value, kind] of BAD) {
  test(`the host refuses ${name} as ${kind}`, () => {
    expect(kindOf(() => decodeGuestMessage(encodeMessagePack(value)))).toBe(kind);
  });
}

test("every truncation of a message is refused", () => {
  const bytes = encodeGuestMessage(ACK);
  for (let length = 0; length < bytes.length; length += 1) {
    expect(kindOf(() => decodeGuestMessage(bytes.subarray(0, length)))).toBe("bad_message");
  }
});

test("a byte behind a message is refused", () => {
  const bytes = Uint8Array.from([...encodeGuestMessage(ACK), 0]);
  expect(kindOf(() => decodeGuestMessage(bytes))).toBe("bad_message");
});

test("a refusal never shows the value", () => {
  const bytes = encodeMessagePack([69, { id: { "\u001b[31msecret": "token" } }]);
  expect(() => decodeGuestMessage(bytes)).toThrow(/^Cannot read ack: field "id" is wrong \(invalid_type\)$/);
});

test("a side cannot send the other side's messages, a bad body or too many bytes", () => {
  expect(kindOf(() => encodeHostMessage(ACK as never))).toBe("bug");
  expect(kindOf(() => encodeHostMessage({ name: "toString", body: {} } as never))).toBe("bug");
  expect(kindOf(() => encodeHostMessage({ name: "thaw", body: { id: "" } }))).toBe("bad_message");
  const argv = Array.from({ length: 64 }, () => "x".repeat(1_000));
  const start = { id: "r", job: "job_a", argv, stdin: false };
  expect(kindOf(() => encodeHostMessage({ name: "job_start", body: start }))).toBe("too_large");
});

test("messages keep their order in both directions until the end", async () => {
  const { host, guest } = await streams();
  const hostPort = hostControlPort(host);
  const guestPort = guestControlPort(guest);
  const sent: HostMessage[] = Array.from({ length: 500 }, (_, sequence) => ({
    name: "ping",
    body: { sequence },
  }));
  const sending = Promise.all(sent.map((message) => hostPort.send(message))).then(() => host.end());
  const received: HostMessage[] = [];
  for await (const message of guestPort.messages()) received.push(message);
  await sending;
  expect(received).toEqual(sent);
  await guestPort.send(ACK);
  guest.end();
  const answers: GuestMessage[] = [];
  for await (const message of hostPort.messages()) answers.push(message);
  expect(answers).toEqual([ACK]);
});

const BAD_STREAMS: [string, string, string][] = [
  ["a length above the limit", "0000f001", "too_large"],
  ["a length of four gigabytes", "ffffffff", "too_large"],
  ["an empty message", "00000000", "bad_message"],
  ["a stream that ends within a length", "0000", "truncated"],
  ["a stream that ends within a message", "00000009 92", "truncated"],
  ["a stream that ends behind a length", "00000009", "truncated"],
];
for (const [name, hex, kind] of BAD_STREAMS) {
  test(`${name} resets the control stream as ${kind}`, async () => {
    const { host, guest } = await streams();
    await guest.write(new Uint8Array(Buffer.from(hex.replaceAll(" ", ""), "hex")));
    guest.end();
    const messages = hostControlPort(host).messages();
    await expect(messages.next()).rejects.toMatchObject({ kind });
    await expect(guest.read()).rejects.toMatchObject({ kind: "reset", detail: "protocol_error" });
  });
}
