/** Byte vectors of MCP frames. Another implementation can run them as they are. */
import { expect, test } from "vitest";
import {
  encodeMcpEnd,
  encodeMcpMessage,
  encodeMcpParts,
  McpFrameFault,
  type McpMessage,
} from "./mcp-frame.ts";
import { McpFrameReader } from "./mcp-frame-reader.ts";

const REQUEST = "00000015 4d43 01 10 00000001 0000 0003 00000002 676974 7b7d";
const NOTIFICATION = "00000012 4d43 01 10 00000000 0001 0000 00000002 7b7d";
const END = "00000000";

interface Vector {
  readonly name: string;
  readonly hex: string;
  /** id:name:text of each message that comes, up to the fault. */
  readonly messages?: readonly string[];
  /** The id that the fault names. */
  readonly fault?: number;
  readonly hasEnded?: boolean;
}

const VECTORS: readonly Vector[] = [
  { name: "good: a request", hex: REQUEST, messages: ["1:git:{}"] },
  { name: "good: a notification", hex: NOTIFICATION, messages: ["0::{}"] },
  {
    name: "good: no name and no payload",
    hex: "00000010 4d43 01 10 00000003 0000 0000 00000000",
    messages: ["3::"],
  },
  {
    name: "good: an even id",
    hex: "00000012 4d43 01 10 00000002 0000 0000 00000002 7b7d",
    messages: ["2::{}"],
  },
  {
    name: "good: the highest id",
    hex: "00000012 4d43 01 10 ffffffff 0000 0000 00000002 7b7d",
    messages: ["4294967295::{}"],
  },
  { name: "good: two frames", hex: `${REQUEST} ${NOTIFICATION}`, messages: ["1:git:{}", "0::{}"] },
  { name: "good: the end", hex: `${REQUEST} ${END}`, messages: ["1:git:{}"], hasEnded: true },
  { name: "good: the end at once", hex: END, messages: [], hasEnded: true },
  {
    name: "good: a message in three frames, cut within a character",
    hex:
      "00000012 4d43 01 10 00000001 0002 0001 00000001 61 22" +
      "00000011 4d43 01 10 00000001 0002 0000 00000001 c3" +
      "00000012 4d43 01 10 00000001 0000 0000 00000002 bc22",
    messages: ['1:a:"ü"'],
  },
  {
    name: "good: a notification in two frames",
    hex:
      "00000011 4d43 01 10 00000000 0003 0000 00000001 7b" +
      "00000011 4d43 01 10 00000000 0001 0000 00000001 7d",
    messages: ["0::{}"],
  },
  {
    name: "good: other ids between the frames of a message",
    hex:
      "00000011 4d43 01 10 00000001 0002 0000 00000001 7b" +
      NOTIFICATION +
      "00000011 4d43 01 10 00000001 0000 0000 00000001 7d",
    messages: ["0::{}", "1::{}"],
  },
  {
    name: "good: control characters and spaces of a name",
    hex: "00000018 4d43 01 10 00000001 0000 0006 00000002 61200a627fff 7b7d",
    messages: ["1:a__b__:{}"],
  },
  { name: "truncated: half a length word", hex: "0000", fault: 0 },
  { name: "truncated: half a header", hex: "00000012 4d43 01 10 0000", fault: 0 },
  { name: "truncated: half a payload", hex: "00000012 4d43 01 10 00000001 0000 0000 00000002 7b", fault: 0 },
  {
    name: "truncated: a message that goes on and does not",
    hex: "00000011 4d43 01 10 00000005 0002 0000 00000001 7b",
    fault: 5,
  },
  { name: "undersize: a length of 15", hex: "0000000f 4d43 01 10 00000001 0000 0000 000000", fault: 0 },
  { name: "undersize: a length of 1", hex: "00000001 4d", fault: 0 },
  { name: "oversize: a length above the limit", hex: "00101001", fault: 0 },
  { name: "oversize: four gigabytes", hex: "ffffffff", fault: 0 },
  {
    name: "oversize: a name of 129 bytes",
    hex: `00000091 4d43 01 10 00000007 0000 0081 00000000 ${"61".repeat(129)}`,
    fault: 7,
  },
  { name: "wrong: magic", hex: "00000012 4d44 01 10 00000001 0000 0000 00000002 7b7d", fault: 0 },
  { name: "wrong: version 0", hex: "00000012 4d43 00 10 00000001 0000 0000 00000002 7b7d", fault: 1 },
  { name: "wrong: version 2", hex: "00000012 4d43 02 10 00000001 0000 0000 00000002 7b7d", fault: 1 },
  { name: "wrong: header of 20", hex: "00000012 4d43 01 14 00000001 0000 0000 00000002 7b7d", fault: 1 },
  { name: "wrong: flag bit 2", hex: "00000012 4d43 01 10 00000001 0004 0000 00000002 7b7d", fault: 1 },
  { name: "wrong: flag bit 15", hex: "00000012 4d43 01 10 00000001 8000 0000 00000002 7b7d", fault: 1 },
  {
    name: "wrong: a length too long by one",
    hex: "00000013 4d43 01 10 00000001 0000 0000 00000002 7b7d00",
    fault: 1,
  },
  {
    name: "wrong: a length too short by one",
    hex: "00000011 4d43 01 10 00000001 0000 0000 00000002 7b7d",
    fault: 1,
  },
  {
    name: "wrong: a payload length that wraps",
    hex: "00000012 4d43 01 10 00000001 0000 0003 ffffffff 7b7d",
    fault: 1,
  },
  {
    name: "wrong: payload that is not UTF-8",
    hex: "00000011 4d43 01 10 00000001 0000 0000 00000001 ff",
    fault: 1,
  },
  {
    name: "zero: a request on stream 0",
    hex: "00000012 4d43 01 10 00000000 0000 0000 00000002 7b7d",
    fault: 0,
  },
  {
    name: "zero: a notification on stream 1",
    hex: "00000012 4d43 01 10 00000001 0001 0000 00000002 7b7d",
    fault: 1,
  },
  {
    name: "trailing: a frame behind the end",
    hex: `${END} ${REQUEST}`,
    messages: [],
    hasEnded: true,
    fault: 0,
  },
  { name: "trailing: a byte behind the end", hex: `${END} 00`, messages: [], hasEnded: true, fault: 0 },
  {
    name: "good frames in front of a bad one count",
    hex: `${REQUEST} 00000001`,
    messages: ["1:git:{}"],
    fault: 0,
  },
];

function run(bytes: Uint8Array, cut: number) {
  const reader = new McpFrameReader();
  const messages: McpMessage[] = [];
  let fault: McpFrameFault | undefined;
  try {
    for (let at = 0; at < bytes.length; at += cut) {
      reader.push(bytes.subarray(at, at + cut), (message) => messages.push(message));
    }
    reader.end();
  } catch (thrown) {
    if (!(thrown instanceof McpFrameFault)) throw thrown;
    fault = thrown;
  }
  return { messages, fault, hasEnded: reader.hasEnded };
}

for (const vector of VECTORS) {
  test(vector.name, () => {
    const bytes = Buffer.from(vector.hex.replaceAll(" ", ""), "hex");
    for (const cut of [1, 3, 7, 21, bytes.length]) {
      const { messages, fault, hasEnded } = run(bytes, cut);
      const told = messages.map(({ streamId, processName, text }) => `${streamId}:${processName}:${text}`);
      expect(told).toEqual(vector.messages ?? []);
      expect(fault?.streamId, fault?.message).toBe(vector.fault);
      expect(hasEnded).toBe(vector.hasEnded ?? false);
      for (const message of messages) expect(message.isNotification).toBe(message.streamId === 0);
    }
  });
}

test("what is written is the vector", () => {
  const hex = (head: { streamId: number; processName: string }, text: string) =>
    Buffer.concat(encodeMcpMessage(head, text)).toString("hex");
  expect(hex({ streamId: 1, processName: "git" }, "{}")).toBe(REQUEST.replaceAll(" ", ""));
  expect(hex({ streamId: 0, processName: "" }, "{}")).toBe(NOTIFICATION.replaceAll(" ", ""));
  expect(Buffer.from(encodeMcpEnd()).toString("hex")).toBe(END);
});

const PARTS: readonly (readonly string[])[] = [
  [],
  ["{}"],
  ["{", "", '"a":1', "}"],
  ['{"text":"', "é".repeat(2_100), '"}'],
  ['{"text":"', "x".repeat(1_048_567), '"}'],
  ["x".repeat(1_048_576), "y".repeat(1_048_576), "z"],
  ["x".repeat(2_500_000), "y".repeat(700_000)],
];
for (const parts of PARTS) {
  const lengths = parts.map(({ length }) => length).join(" + ");
  test(`a message in parts of ${lengths === "" ? "nothing" : lengths} makes the frames that it makes whole`, () => {
    const head = { streamId: 5, processName: "git" };
    const buffers = encodeMcpParts(
      head,
      parts.map((part) => new Uint8Array(Buffer.from(part))),
    );
    const whole = encodeMcpMessage(head, parts.join(""));
    expect(Buffer.concat(buffers).equals(Buffer.concat(whole))).toBe(true);
  });
}

test("parts that are too long together are no message", () => {
  const part = new Uint8Array(8_388_608);
  const head = { streamId: 1, processName: "" };
  expect(encodeMcpParts(head, [part, part])[1]?.buffer).toBe(part.buffer);
  expect(() => encodeMcpParts(head, [part, part, Uint8Array.of(1)])).toThrow("16777217 bytes");
});

test("a long message is cut into frames and joined again, at any cut", () => {
  const text = `"${"ü".repeat(1_500_000)}"`;
  const frames = encodeMcpMessage({ streamId: 9, processName: "a" }, text);
  expect(frames).toHaveLength(3);
  for (const cut of [4_000, 65_536, 5_000_000]) {
    const { messages, fault } = run(Buffer.concat(frames), cut);
    expect(fault).toBeUndefined();
    expect(messages).toEqual([{ streamId: 9, isNotification: false, processName: "a", text }]);
  }
});

test("a message of 16 MiB is taken and a longer one is not, on either side", () => {
  const most = "x".repeat(16_777_216);
  const frames = encodeMcpMessage({ streamId: 1, processName: "" }, most);
  expect(frames).toHaveLength(16);
  const { messages } = run(Buffer.concat(frames), 65_536);
  expect(messages[0]?.text).toHaveLength(most.length);
  expect(() => encodeMcpMessage({ streamId: 1, processName: "" }, `${most}x`)).toThrow("16777217 bytes");

  const part = Buffer.from(frames[0] ?? []);
  const tooLong = Buffer.concat([...Array.from({ length: 16 }, () => part), part]);
  expect(run(tooLong, 65_536).fault?.message).toContain("too long");
});

test("messages that begin and never end are bounded together, in bytes and in number", () => {
  const begin = (payloadBytes: number) => {
    const frames = encodeMcpMessage({ streamId: 1, processName: "" }, "x".repeat(1_048_577));
    const frame = Buffer.from(frames[0] ?? []).subarray(0, 20 + payloadBytes);
    frame.writeUInt32BE(16 + payloadBytes, 0);
    frame.writeUInt32BE(payloadBytes, 16);
    const reader = new McpFrameReader();
    for (let id = 1; id < 200; id += 2) {
      frame.writeUInt32BE(id, 8);
      reader.push(Buffer.from(frame), () => undefined);
    }
  };
  expect(() => begin(1)).toThrow("16 messages have begun");
  expect(() => begin(1_048_576)).toThrow("16 messages have begun");

  const frames = encodeMcpMessage({ streamId: 1, processName: "" }, "x".repeat(16_777_216));
  const reader = new McpFrameReader();
  for (const frame of frames.slice(0, -1)) reader.push(frame, () => undefined);
  const other = encodeMcpMessage({ streamId: 3, processName: "" }, "x".repeat(1_048_577));
  reader.push(other[0] ?? new Uint8Array(), () => undefined);
  expect(reader.heldBytes).toBe(16_777_216);
  expect(() => reader.push(frames.at(-1) ?? new Uint8Array(), () => undefined)).toThrow("too long");
});

test("tiny frames that promise more cost what they hold", () => {
  const tiny = Buffer.from("00000011 4d43 01 10 00000001 0002 0000 00000001 78".replaceAll(" ", ""), "hex");
  const block = Buffer.concat(Array.from({ length: 10_000 }, () => tiny));
  const reader = new McpFrameReader();
  const before = process.memoryUsage();
  for (let round = 0; round < 60; round += 1) reader.push(Buffer.from(block), () => undefined);
  const after = process.memoryUsage();
  expect(reader.heldBytes).toBe(600_000);
  // An object for each frame would be more than 100 MB.
  const grown = after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers;
  expect(grown).toBeLessThan(60_000_000);
});

test("a whole frame passes while another message is nearly as long as it may be", () => {
  const frames = encodeMcpMessage({ streamId: 1, processName: "" }, "x".repeat(16_777_216));
  const reader = new McpFrameReader();
  const told: number[] = [];
  const tell = (message: McpMessage) => told.push(message.streamId);
  for (const frame of frames.slice(0, -1)) reader.push(frame, tell);
  reader.push(Buffer.concat(encodeMcpMessage({ streamId: 3, processName: "" }, "y".repeat(1_048_576))), tell);
  reader.push(frames.at(-1) ?? new Uint8Array(), tell);
  expect(told).toEqual([3, 1]);
});
