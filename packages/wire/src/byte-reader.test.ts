import { expect, test } from "vitest";
import { createByteReader } from "./byte-reader.ts";

function source(chunks: readonly Uint8Array[]) {
  let at = 0;
  return { read: () => Promise.resolve(chunks[at++] ?? null) };
}

test("sized values come out whatever the cut", async () => {
  const bytes = Uint8Array.of(0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 1, 9, 42);
  for (let cut = 1; cut <= bytes.length; cut += 1) {
    const chunks: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; at += cut) chunks.push(bytes.subarray(at, at + cut));
    const reader = createByteReader(source(chunks));
    expect(await reader.takeSized(2)).toEqual(Uint8Array.of(7, 8));
    expect(await reader.takeSized(2)).toEqual(new Uint8Array(0));
    expect(await reader.takeSized(2)).toEqual(Uint8Array.of(9));
    const rest = reader.rest();
    if (cut === bytes.length) expect(rest).toEqual(Uint8Array.of(42));
    expect(reader.rest().length).toBe(0);
  }
});

test("two hundred thousand chunks of one byte are gathered in linear time", async () => {
  const one = Uint8Array.of(5);
  let left = 200_000;
  const reader = createByteReader({ read: () => Promise.resolve(left-- > 0 ? one : null) });
  const taken = await reader.take(200_000);
  expect(taken?.length).toBe(200_000);
  expect(taken?.every((byte) => byte === 5)).toBe(true);
  expect(await reader.take(1)).toBe(null);
});

test("a length above the limit is refused before its bytes are read", async () => {
  const reader = createByteReader(source([Uint8Array.of(0, 0, 1, 0)]));
  await expect(reader.takeSized(255)).rejects.toMatchObject({ kind: "too_large" });
});

test("an end within a value is truncated, before one it is an end", async () => {
  expect(await createByteReader(source([])).takeSized(10)).toBe(null);
  for (const bytes of [[0], [0, 0, 0, 3], [0, 0, 0, 3, 1, 2]]) {
    const reader = createByteReader(source([Uint8Array.from(bytes)]));
    await expect(reader.takeSized(10)).rejects.toMatchObject({ kind: "truncated" });
  }
});
