import { expect, test } from "vitest";
import { peekable } from "./peeked-body.ts";

const KIB = 1024;
const signal = new AbortController().signal;

/** xorshift32: the same sizes for the same seed. */
function randomOf(seed: number): (below: number) => number {
  let state = seed | 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

function chunked(bytes: Buffer, random: (below: number) => number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const length = 1 + random(40 * KIB);
    chunks.push(bytes.subarray(at, at + length));
    at += length;
  }
  return chunks;
}

async function* from(chunks: readonly Buffer[]): AsyncGenerator<Buffer> {
  for (const chunk of chunks) yield chunk;
}

async function collect(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return Buffer.concat(all);
}

const SIZES = [0, 1, 100, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 64 * KIB + 2, 128 * KIB, 300 * KIB];

test.each(SIZES)("of %d bytes the first are seen, and all are handed on, however they come", async (size) => {
  for (let seed = 1; seed <= 20; seed++) {
    const random = randomOf(seed * 7919 + size);
    const bytes = Buffer.from(Array.from({ length: size }, () => random(256)));
    const wanted = 64 * KIB + 1;
    const body = peekable(() => from(chunked(bytes, random)), null);
    const peeked = await body.peek(wanted, 1e9, signal);
    expect(bytes.subarray(0, wanted).equals(peeked), `seed ${seed}`).toBe(true);
    expect(bytes.equals(await collect(body.chunks(1e9))), `seed ${seed}`).toBe(true);
  }
});

test("what nobody peeked comes as it is, and whoever stops lets go of the source", async () => {
  let isReleased = false;
  async function* source() {
    try {
      yield Buffer.from("one");
      yield Buffer.from("two");
    } finally {
      isReleased = true;
    }
  }
  const body = peekable(source, 6);
  expect(body.declaredBytes).toBe(6);
  for await (const chunk of body.chunks(10)) {
    expect(String(chunk)).toBe("one");
    break;
  }
  expect(isReleased).toBe(true);
});

test("a client that leaves while its upload is looked at is not waited for", async () => {
  const leaving = new AbortController();
  async function* never() {
    yield Buffer.from("a");
    await new Promise(() => undefined);
  }
  const peeking = peekable(never, null).peek(10, 100, leaving.signal);
  leaving.abort();
  await expect(peeking).rejects.toMatchObject({ kind: "cancelled" });
});

test("a source that fails is the failure of whoever reads it", async () => {
  async function* failing() {
    yield Buffer.from("a");
    throw new Error("broken");
  }
  await expect(peekable(failing, null).peek(10, 100, signal)).rejects.toThrow("broken");
});

test.each(SIZES)("of %d bytes a second look shows the same, and reads no more of them", async (size) => {
  const random = randomOf(size + 1);
  const bytes = Buffer.from(Array.from({ length: size }, () => random(256)));
  let read = 0;
  async function* counted() {
    for (const chunk of chunked(bytes, random)) {
      read += chunk.length;
      yield chunk;
    }
  }
  const body = peekable(counted, null);
  let first: number | undefined;
  for (const wanted of [64 * KIB + 1, 64 * KIB + 1, 100]) {
    const peeked = await body.peek(wanted, 1e9, signal);
    expect(bytes.subarray(0, wanted).equals(peeked), String(wanted)).toBe(true);
    first ??= read;
  }
  expect(read).toBe(first);
  expect(bytes.equals(await collect(body.chunks(1e9)))).toBe(true);
});
