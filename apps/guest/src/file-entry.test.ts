import { expect, test } from "vitest";
import { decodeList, decodeStat } from "./file-entry.ts";
import { parseFindOutput } from "./find-output.ts";

function entryBytes(name: Buffer, target = "", type = "f"): Buffer {
  const head = Buffer.alloc(36);
  head.write(type, 0, "latin1");
  head.writeUInt32BE(0o644, 1);
  head.writeUInt32BE(1000, 5);
  head.writeUInt32BE(1001, 9);
  head.writeBigUInt64BE(77n, 13);
  head.writeBigInt64BE(-5n, 21);
  head.writeUInt32BE(500_000_000, 29);
  head.writeUInt16BE(name.length, 34);
  const tail = Buffer.alloc(2);
  tail.writeUInt16BE(target.length);
  return Buffer.concat([head, name, tail, Buffer.from(target)]);
}

const page = (next: bigint, ...entries: Buffer[]): Buffer => {
  const cookie = Buffer.alloc(8);
  cookie.writeBigUInt64BE(next);
  return Buffer.concat([cookie, ...entries]);
};

test("an entry has its facts, a time before 1970 included", () => {
  expect(decodeStat(entryBytes(Buffer.alloc(0)))).toEqual({
    name: ".",
    type: "file",
    size: 77,
    mode: 0o644,
    mtime_ms: -4_500,
    uid: 1000,
    gid: 1001,
  });
});

test("a link has its target, and a name that is not UTF-8 is marked", () => {
  const { next, entries } = decodeList(
    page(9n, entryBytes(Buffer.from([0x61, 0xff])), entryBytes(Buffer.from("l"), "t", "l")),
  );
  expect(next).toBe(9);
  expect(entries.map(({ entry }) => [entry.name, entry.type, entry.target, entry.lossy])).toEqual([
    ["a\ufffd", "file", undefined, true],
    ["l", "symlink", "t", undefined],
  ]);
});

test("every cut of a listing is malformed, not misread", () => {
  const whole = page(0n, entryBytes(Buffer.from("name"), "target", "l"));
  for (let length = 0; length < whole.length; length++) {
    if (length === 8) continue;
    expect(() => decodeList(whole.subarray(0, length))).toThrow(/malformed/);
  }
  expect(() => decodeStat(Buffer.concat([entryBytes(Buffer.from("a")), Buffer.alloc(1)]))).toThrow(
    /malformed/,
  );
});

test("what find writes is read, tabs and newlines in names included", () => {
  const output = Buffer.from(
    "f\t644\t0\t1000\t12\t1000000000.5000000000\ta\tb\n\0\0l\t777\t0\t0\t1\t-1.0\tl\0to\0",
  );
  expect(parseFindOutput(output, 10)?.map(({ entry }) => entry)).toEqual([
    { name: "a\tb\n", type: "file", mode: 0o644, uid: 0, gid: 1000, size: 12, mtime_ms: 1_000_000_000_500 },
    { name: "l", type: "symlink", mode: 0o777, uid: 0, gid: 0, size: 1, mtime_ms: -1_000, target: "to" },
  ]);
});

test.each([
  ["no ends", "f\t644\t0\t0\t1\t1.0\ta"],
  ["one end of two", "f\t644\t0\t0\t1\t1.0\ta\0"],
  ["no name", "f\t644\t0\t0\t1\t1.0\t\0\0"],
  ["a mode that is none", "f\t988\t0\t0\t1\t1.0\ta\0\0"],
  ["a field too few", "f\t644\t0\t0\t1\ta\0\0"],
  ["an endless number", `f\t644\t0\t0\t${"9".repeat(40)}\t1.0\ta\0\0`],
  ["words", "find: cannot\0\0"],
])("find's output with %s is malformed", (_, text) => {
  expect(() => parseFindOutput(Buffer.from(text), 10)).toThrow(/something else/);
});

test("more entries than the bound are not kept", () => {
  const one = "f\t644\t0\t0\t1\t1.0\ta\0\0";
  expect(parseFindOutput(Buffer.from(one.repeat(3)), 2)).toBeUndefined();
});
