import { expect, test } from "vitest";
import { encodeMetaLine, parseMetaLine } from "./meta-line.ts";
import { cleanProcessName } from "./process-name.ts";
import { type TrafficKind, trafficKindOf } from "./traffic-kind.ts";

const bytesOf = (text: string) => new Uint8Array(Buffer.from(text, "latin1"));

test("the line and what follows it", () => {
  expect(Buffer.from(encodeMetaLine("git")).toString("latin1")).toBe("\0CAPSEM_META:git\n");
  expect(parseMetaLine(bytesOf("\0CAPSEM_META:git\nrest"))).toEqual({ processName: "git", byteLength: 17 });
  expect(parseMetaLine(bytesOf("\0CAPSEM_META:\n"))).toEqual({ processName: "", byteLength: 14 });
  expect(parseMetaLine(encodeMetaLine("a b\n"))).toEqual({ processName: "a_b_", byteLength: 18 });
});

test("more bytes are asked for until the line is whole, and never read twice", () => {
  const line = bytesOf("\0CAPSEM_META:git\n");
  for (let length = 0; length < line.length; length += 1) {
    expect(parseMetaLine(line.subarray(0, length))).toBeUndefined();
  }
  expect(parseMetaLine(line)?.byteLength).toBe(line.length);
});

test("anything else is refused at its first wrong byte", () => {
  for (const text of ["CAPSEM_META:", "\0capsem", "\0CAPSEM-META", "GET / HTTP/1.1", "\0\0"]) {
    expect(() => parseMetaLine(bytesOf(text)), text).toThrow("metadata line");
  }
  expect(() => parseMetaLine(bytesOf("\0C "))).toThrow("metadata line");
});

test("a line of 4,096 bytes is taken and a longer one is not", () => {
  const longest = bytesOf(`\0CAPSEM_META:${"x".repeat(4_082)}\n`);
  expect(longest).toHaveLength(4_096);
  expect(parseMetaLine(longest)).toEqual({ processName: "x".repeat(128), byteLength: 4_096 });
  expect(() => parseMetaLine(bytesOf(`\0CAPSEM_META:${"x".repeat(4_083)}\n`))).toThrow("does not end");
  expect(() => parseMetaLine(bytesOf(`\0CAPSEM_META:${"x".repeat(9_000)}`))).toThrow("does not end");
});

test("a name shows nothing that a reader would not see, and is cut between characters", () => {
  expect(cleanProcessName("a\u001b[31m b\u202ec\u00a0d\u200b\ud800")).toBe("a_[31m_b_c_d__");
  expect(cleanProcessName(`${"x".repeat(127)}ü`)).toBe("x".repeat(127));
  expect(cleanProcessName("ü".repeat(64))).toBe("ü".repeat(64));
  expect(cleanProcessName("😀".repeat(40))).toBe("😀".repeat(32));
});

const KINDS: readonly (readonly [string, TrafficKind])[] = [
  ["\0\0\0\u0012MC\u0001", "mcp"],
  ["\0\0\0\0", "mcp"],
  ["\0\u0010\u0010\u0001", "mcp"],
  ["\u0001\0\0\0MC", "mcp"],
  ["\xff\xff\xff\xffMC", "mcp"],
  ["POST /mcp HTTP/1.1\r\n", "http"],
  ["GET / HTTP/1.0", "http"],
  ["M-SEARCH * HTTP/1.1", "http"],
  ["UPDATEREDIRECTREF / HTTP/1.1", "http"],
  ["\u0016\u0003\u0001\u0002\0\u0001", "tls"],
  ["\u0016\u0004xxxx", "other"],
  ["PRI * HTTP/2.0\r\n", "other"],
  ["get / HTTP/1.1", "other"],
  ["SSH-2.0-OpenSSH", "other"],
  [" GET / HTTP/1.1", "other"],
  ["ABCDEFGHIJKLMNOPQRSTUVWXYZ", "other"],
  ['{"jsonrpc":"2.0"}', "other"],
  ["\u0080\0\0\0\0\0", "other"],
];

test("the first bytes tell what a stream carries, and too few tell nothing wrong", () => {
  for (const [text, kind] of KINDS) {
    const bytes = bytesOf(text.padEnd(20, "\0"));
    expect(trafficKindOf(bytes), JSON.stringify(text)).toBe(kind);
    const told = Array.from({ length: 20 }, (_, length) => trafficKindOf(bytes.subarray(0, length)));
    for (const early of told) expect([kind, undefined], JSON.stringify(text)).toContain(early);
  }
});
