import { expect, test } from "vitest";
import { encodeFrame, FRAME_TYPES } from "./frame.ts";
import { CONTROL_MAGIC } from "./lane-hello.ts";
import { SyncScanner } from "./sync-scanner.ts";

const HELLO = encodeFrame(FRAME_TYPES.hello, 0, Uint8Array.of(0x80));
const WORD = Uint8Array.of(1, 1, 2, 1, 1, 3);

function feed(word: Uint8Array, bytes: Uint8Array, cut: number) {
  const scanner = new SyncScanner(word);
  for (let at = 0; at < bytes.length; at += cut) {
    const found = scanner.push(bytes.subarray(at, at + cut));
    if (found !== undefined) {
      return {
        rest: bytes.length - at - Math.min(cut, bytes.length - at) + found.rest.length,
        scanner,
        found,
      };
    }
  }
  return { rest: -1, scanner, found: undefined };
}

const BEFORE: [string, readonly number[]][] = [
  ["nothing", []],
  ["other bytes", [9, 9, 9]],
  ["the word's own beginning", [1, 1, 2, 1]],
  ["a beginning that overlaps", [1, 1, 2, 1, 1, 2]],
  ["the first byte, many times", [1, 1, 1, 1, 1]],
  ["the word with data behind it", [...WORD, 0, 0, 0, 9, 3, 0, 0, 0, 2, 1]],
  ["the word with a length of zero behind it", [...WORD, 0, 0, 0, 0, 1, 0, 0, 0, 0]],
  ["the word with half a hello behind it", [...WORD, 0, 0, 0]],
  ["the word twice", [...WORD, ...WORD]],
];
for (const [name, before] of BEFORE) {
  test(`the hello is found behind ${name}, whatever the cut`, () => {
    const bytes = Uint8Array.from([...before, ...WORD, ...HELLO, 7, 7, 7]);
    for (let cut = 1; cut <= bytes.length; cut += 1) {
      const { rest, scanner, found } = feed(WORD, bytes, cut);
      expect(rest).toBe(3);
      expect(found?.payload).toEqual(Uint8Array.of(0x80));
      expect(scanner.staleBytes).toBe(before.length);
    }
  });
}

test("a hello of a size or an id that it cannot have is data", () => {
  const oversize = encodeFrame(FRAME_TYPES.hello, 0, new Uint8Array(1_025));
  const empty = encodeFrame(FRAME_TYPES.hello, 0, new Uint8Array(0));
  const named = encodeFrame(FRAME_TYPES.hello, 1, Uint8Array.of(0x80));
  for (const frame of [oversize, empty, named]) {
    const bytes = Uint8Array.from([...WORD, ...frame]);
    expect(feed(WORD, bytes, bytes.length).found).toBe(undefined);
    expect(feed(WORD, Uint8Array.from([...bytes, ...WORD, ...HELLO]), 3).rest).toBe(0);
  }
});

test("a megabyte that repeats the word's beginning is thrown away in linear time", () => {
  const bytes = new Uint8Array(1_048_576);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = CONTROL_MAGIC[at % 15] ?? 0;
  const { scanner, found } = feed(CONTROL_MAGIC, bytes, 4_096);
  expect(found).toBe(undefined);
  expect(scanner.staleBytes).toBe(bytes.length);
});

test("the magic can never be a length", () => {
  const word = Buffer.from(CONTROL_MAGIC).readUInt32BE(0);
  expect(CONTROL_MAGIC.length).toBe(16);
  expect(word).toBeGreaterThan(65_536);
});
