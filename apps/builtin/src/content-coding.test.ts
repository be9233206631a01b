import { execFileSync } from "node:child_process";
import { brotliCompressSync, constants, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { concat } from "@capsem/base";
import { expect, test, vi } from "vitest";
import { readBody } from "./content-coding.ts";
import { FETCH_LIMITS } from "./limits.ts";
import { unzstd } from "./zstd.ts";

vi.setConfig({ testTimeout: 60_000 });

const MIB = 1024 * 1024;
const reader = { unzstd: async (body: Uint8Array) => unzstd(body) };
const never = new AbortController().signal;

/** In chunks of a size, counting those that were taken. */
function chunked(bytes: Uint8Array, size = 16 * 1024) {
  const state = { taken: 0, isOver: false };
  async function* body(): AsyncGenerator<Uint8Array> {
    try {
      for (let at = 0; at < bytes.length; at += size) {
        state.taken += 1;
        yield bytes.subarray(at, at + size);
      }
    } finally {
      state.isOver = true;
    }
  }
  return { state, body: body() };
}

const read = async (coding: string | null, bytes: Uint8Array, size?: number) =>
  (await readBody(chunked(bytes, size).body, coding, reader, never)).bytes;

/** A zstd frame of blocks (RFC 8878): RLE ones of a byte, or raw ones. */
function zstdFrame(
  blocks: readonly ({ rle: number } | { raw: Uint8Array })[],
  windowByte = 0x38,
): Uint8Array {
  const parts: Uint8Array[] = [Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, 0x00, windowByte)];
  for (const [index, block] of blocks.entries()) {
    const isLast = index === blocks.length - 1 ? 1 : 0;
    const [size, type, body] =
      "rle" in block ? [block.rle, 1, Uint8Array.of(65)] : [block.raw.length, 0, block.raw];
    const header = isLast | (type << 1) | (size << 3);
    parts.push(Uint8Array.of(header & 0xff, (header >> 8) & 0xff, header >> 16), body);
  }
  return concat(parts);
}

const hasZstd = (() => {
  try {
    execFileSync("zstd", ["--version"], { stdio: "ignore" });
    return true;
  } catch {
    console.log("skipped: bodies by the zstd program, because there is none on this machine");
    return false;
  }
})();

test.skipIf(!hasZstd).each([[[]], [["--check"]], [["-19"]], [["--no-check", "--fast=5"]], [["--long=23"]]])(
  "what the zstd program makes is read (%j)",
  async (options) => {
    const text = Buffer.from(
      Array.from({ length: 60_000 }, (_, index) => `${index % 977} some words ${index}\n`).join(""),
    );
    const made = execFileSync("zstd", ["-c", "-q", ...options], { input: text, maxBuffer: 64 * MIB });
    expect(Buffer.from(await read("zstd", made)).equals(text)).toBe(true);
    // Frames follow each other, and what is to be skipped lies between.
    const skipped = concat([Uint8Array.of(0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3)]);
    const twice = await read("zstd", concat([made, skipped, made]));
    expect(Buffer.from(twice).equals(Buffer.concat([text, text]))).toBe(true);
    await expect(read("zstd", made.subarray(0, made.length - 9))).rejects.toThrow("cut off");
    expect(
      Buffer.from(
        await read("gzip, zstd", execFileSync("zstd", ["-c", "-q"], { input: gzipSync("two layers") })),
      ).toString(),
    ).toBe("two layers");
  },
);

test("blocks of zstd that are raw or one byte repeated are read, in chunks of any size", async () => {
  const frame = zstdFrame([{ raw: Buffer.from("hello ") }, { rle: 5 }]);
  for (const size of [1, 3, 1_000])
    expect(Buffer.from(await read("zstd", frame, size)).toString()).toBe("hello AAAAA");
});

test.each<[string, Uint8Array, string]>([
  ["a window of two gigabytes", zstdFrame([{ rle: 5 }], 0xa8), "its window is 2147483648 bytes"],
  ["a window one step over", zstdFrame([{ rle: 5 }], (13 << 3) | 1), "its window is"],
  [
    "a size of four gigabytes",
    concat([Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0xf0), zstdFrame([{ rle: 5 }]).subarray(6)]),
    "over",
  ],
  [
    "a dictionary",
    concat([Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, 0x01, 0x38, 9), zstdFrame([{ rle: 5 }]).subarray(6)]),
    "dictionary",
  ],
  [
    "a block of a reserved type",
    concat([zstdFrame([{ rle: 5 }]).subarray(0, 6), Uint8Array.of(0x2f, 0, 0, 65)]),
    "a block is none",
  ],
  ["no zstd at all", Buffer.from("plain text that is long enough"), "no zstd"],
  ["nothing but a part to skip", Uint8Array.of(0x53, 0x2a, 0x4d, 0x18, 0, 0, 0, 0), "no frame"],
  [
    "a part to skip that is longer than all",
    Uint8Array.of(0x53, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff),
    "cut off",
  ],
])("zstd with %s is refused before a decoder is made", async (_, body, words) => {
  await expect(read("zstd", body)).rejects.toThrow(words);
});

const zeros = Buffer.alloc(100 * MIB);
const BOMBS: readonly (readonly [string, () => Uint8Array])[] = [
  ["gzip", () => gzipSync(zeros, { level: 9 })],
  ["deflate", () => deflateSync(zeros, { level: 9 })],
  ["deflate", () => deflateRawSync(zeros, { level: 9 })],
  ["br", () => brotliCompressSync(zeros, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } })],
  ["zstd", () => zstdFrame(Array.from({ length: 800 }, () => ({ rle: 128 * 1024 })))],
];

test.each(BOMBS)("a bomb of %s is ended long before it is large", async (coding, make) => {
  const bomb = make();
  expect(bomb.length).toBeLessThan(MIB);
  const before = process.memoryUsage();
  const { state, body } = chunked(bomb, 512);
  await expect(readBody(body, coding, reader, never)).rejects.toMatchObject({ kind: "too_large" });
  expect(state.isOver).toBe(true);
  const { arrayBuffers } = process.memoryUsage();
  expect(arrayBuffers - before.arrayBuffers).toBeLessThan(40 * MIB);
});

test("a bomb in a bomb is ended as well", async () => {
  const twice = brotliCompressSync(gzipSync(zeros));
  await expect(read("gzip, br", twice)).rejects.toMatchObject({ kind: "too_large" });
});

test("what grows much but stays small is no bomb, and what is large but grows little is read", async () => {
  const spaces = gzipSync(Buffer.alloc(FETCH_LIMITS.ratioFreeBytes, 32));
  expect((await read("gzip", spaces)).length).toBe(FETCH_LIMITS.ratioFreeBytes);
  const dense = Buffer.from(Array.from({ length: 9 * MIB }, (_, index) => (index * index * 7_919) % 251));
  expect((await read("gzip", gzipSync(dense))).length).toBe(dense.length);
});

test("a body over the limit is ended at the first byte too many", async () => {
  const { state, body } = chunked(Buffer.alloc(20 * MIB, 65), MIB);
  await expect(readBody(body, null, reader, never)).rejects.toMatchObject({ kind: "too_large" });
  expect([state.taken, state.isOver]).toEqual([11, true]);
});

test.each(["gzip", "deflate", "br"])("%s that is cut off or is none is refused", async (coding) => {
  const encode = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync }[coding];
  const whole = encode?.(Buffer.from("some text ".repeat(1_000))) ?? new Uint8Array();
  await expect(read(coding, whole.subarray(0, whole.length - 6))).rejects.toMatchObject({
    kind: "upstream_failed",
  });
  await expect(read(coding, Buffer.from("<html>this is no such thing"))).rejects.toMatchObject({
    kind: "upstream_failed",
  });
});

test("an empty body has no coding, and one that nobody knows is refused", async () => {
  for (const coding of ["gzip", "br", "deflate"])
    expect((await read(coding, new Uint8Array())).length).toBe(0);
  await expect(read("compress", Buffer.from("x"))).rejects.toThrow('"compress" is not known');
  await expect(read("gzip, gzip, gzip", Buffer.from("x"))).rejects.toThrow("3 codings");
});

test("a reading that is given up ends its body", async () => {
  const leaving = new AbortController();
  const state = { isOver: false };
  async function* endless(): AsyncGenerator<Uint8Array> {
    try {
      yield gzipSync("begin").subarray(0, 12);
      await new Promise((_, reject) =>
        leaving.signal.addEventListener("abort", () => reject(new Error("gone"))),
      );
    } finally {
      state.isOver = true;
    }
  }
  const reading = readBody(endless(), "gzip", reader, leaving.signal);
  setImmediate(() => leaving.abort());
  await expect(reading).rejects.toThrow();
  await vi.waitFor(() => expect(state.isOver).toBe(true));
});
