import { Bug, concat, Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { decodeMessagePack, encodeMessagePack, encodeMessagePackParts } from "./msgpack.ts";

function bytesOf(hex: string): Uint8Array {
  return new Uint8Array(Buffer.from(hex.replaceAll(" ", ""), "hex"));
}

const GOOD: [string, unknown][] = [
  ["c0", null],
  ["c3", true],
  ["7f", 127],
  ["e0", -32],
  ["cf 001fffffffffffff", Number.MAX_SAFE_INTEGER],
  ["d3 ffe0000000000001", Number.MIN_SAFE_INTEGER],
  ["cb 3ff8000000000000", 1.5],
  ["a1 61", "a"],
  ["c4 02 0102", Uint8Array.of(1, 2)],
  ["92 01 80", [1, {}]],
  ["81 a1 61 92 01 02", { a: [1, 2] }],
];
for (const [hex, value] of GOOD) {
  test(`${hex} decodes to ${JSON.stringify(value)}`, () => {
    expect(decodeMessagePack(bytesOf(hex))).toEqual(value);
    expect(decodeMessagePack(encodeMessagePack(value))).toEqual(value);
  });
}

const BAD: [string, string][] = [
  ["nothing", ""],
  ["a string cut short", "a2 61"],
  ["a head cut short", "da 00"],
  ["bytes after the value", "c0 c0"],
  ["the unused first byte", "c1"],
  ["an extension", "c7 01 05 00"],
  ["a fixed extension", "d4 05 00"],
  ["a timestamp", "d6 ff 00000000"],
  ["an array that claims four billion values", "dd ffffffff"],
  ["an array that claims more values than bytes follow", "dc 0003 01 02"],
  ["a map that claims more pairs than bytes follow", "df 7fffffff"],
  ["a bin that claims four gigabytes", "c6 ffffffff"],
  ["a number as a key", "81 01 02"],
  ["nil as a key", "81 c0 02"],
  ["an array as a key", "81 90 02"],
  ["a key that is __proto__", "81 a9 5f5f70726f746f5f5f 80"],
  ["an unsigned integer above 2^53", "cf 0020000000000000"],
  ["-2^53", "d3 ffe0000000000000"],
  ["a signed integer below -2^53", "d3 ffdfffffffffffff"],
  ["a signed integer above 2^53", "d3 0020000000000000"],
  ["nesting beyond the limit", `${"91".repeat(33)}c0`],
];
for (const [name, hex] of BAD) {
  test(`${name} is a bad message`, () => {
    let kind = "none";
    try {
      decodeMessagePack(bytesOf(hex));
    } catch (thrown) {
      kind = thrown instanceof Failure ? thrown.kind : "not a failure";
    }
    expect(kind).toBe("bad_message");
  });
}

test("nested arrays that claim their limit allocate nothing", () => {
  // 20,000 headers of 60,000 values each would be 9 GiB of room.
  const bytes = new Uint8Array(60_000);
  for (let at = 0; at + 3 <= bytes.length; at += 3) bytes.set([0xdc, 0xea, 0x60], at);
  expect(() => decodeMessagePack(bytes)).toThrow(Failure);
});

test("the deepest allowed nesting decodes", () => {
  expect(() => decodeMessagePack(bytesOf(`${"91".repeat(31)}c0`))).not.toThrow();
});

test("fields that are undefined are left out", () => {
  expect(decodeMessagePack(encodeMessagePack({ a: undefined, b: 1 }))).toEqual({ b: 1 });
});

test("a Buffer decodes to plain arrays", () => {
  const decoded = decodeMessagePack(Buffer.from(bytesOf("c4 01 09"))) as Uint8Array;
  expect(decoded.constructor).toBe(Uint8Array);
});

for (const value of [new Date(0), new Map(), new Set(), () => 1, 10n, Symbol("a"), /a/]) {
  test(`${Object.prototype.toString.call(value)} cannot be encoded`, () => {
    expect(() => encodeMessagePack({ value })).toThrow(Bug);
  });
}

test("a cycle cannot be encoded", () => {
  const cycle: Record<string, unknown> = {};
  cycle.self = cycle;
  expect(() => encodeMessagePack(cycle)).toThrow(Bug);
});

test("a message stays as it was when others are encoded after it, whatever their size", () => {
  const values = [
    { a: 1 },
    { body: "x".repeat(4_000) },
    { body: "y".repeat(5_000) },
    { body: "z".repeat(100_000) },
  ];
  const encoded = [...values, ...values].map((value) => encodeMessagePack(value));
  expect(encoded.map((bytes) => decodeMessagePack(bytes))).toEqual([...values, ...values]);
});

test("a value that cannot be encoded or decoded leaves nothing behind for the next", () => {
  const good = { list: [1, { deep: "text" }], bytes: Uint8Array.of(1, 2) };
  expect(() => encodeMessagePack({ before: "written", bad: new Map() })).toThrow(Bug);
  expect(() => decodeMessagePack(bytesOf("81 a9 5f 5f 70 72 6f 74 6f 5f 5f 01"))).toThrow(Failure);
  expect(decodeMessagePack(encodeMessagePack(good))).toEqual(good);
});

const LARGE = new Uint8Array(40_000).fill(7);
const LONG = "ü\u{1f600}".repeat(9_000);
const IN_PARTS: [string, unknown][] = [
  ["large bytes alone", LARGE],
  ["a long text alone", LONG],
  ["a member that is large, between others", { a: 1, body: LARGE, b: [undefined, null], none: undefined }],
  [
    "several, some in a list",
    { params: { bodies: [LARGE, Uint8Array.of(1), LARGE], text: LONG }, last: "x" },
  ],
  ["one that lies deeper than parts are looked for", { a: { b: { c: { d: { e: LARGE } } } } }],
  ["nothing large", { a: [1, "two", Uint8Array.of(3)] }],
];
for (const [name, value] of IN_PARTS) {
  test(`parts mean the same as the whole: ${name}`, () => {
    const whole = concat(encodeMessagePackParts(value));
    expect(decodeMessagePack(whole)).toEqual(decodeMessagePack(encodeMessagePack(value)));
  });
}

test("large bytes are a part as they are, and what is around them has parts of its own", () => {
  const parts = encodeMessagePackParts({ a: 1, body: LARGE, b: 2 });
  expect(parts.map((part) => part === LARGE)).toEqual([false, true, false]);
});

test("beside large bytes a Map cannot be encoded, nor a Date that lies deeper", () => {
  expect(() => encodeMessagePackParts({ large: LARGE, bad: new Map() })).toThrow(Bug);
  expect(() => encodeMessagePackParts({ large: LARGE, deep: [{ bad: new Date(0) }] })).toThrow(Bug);
});

test("beside large bytes a cycle cannot be encoded", () => {
  const cycle: Record<string, unknown> = { large: LARGE };
  cycle.self = cycle;
  expect(() => encodeMessagePackParts(cycle)).toThrow(Bug);
});
