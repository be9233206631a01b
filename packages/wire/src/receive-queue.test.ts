import { expect, test } from "vitest";
import { ReceiveQueue } from "./receive-queue.ts";

function retainedBytes(queue: ReceiveQueue): { held: number; bytes: number } {
  const buffers = new Set<ArrayBufferLike>();
  let bytes = 0;
  for (let block = queue.take(); block !== undefined; block = queue.take()) {
    buffers.add(block.buffer);
    bytes += block.length;
  }
  let held = 0;
  for (const buffer of buffers) held += buffer.byteLength;
  return { held, bytes };
}

const large = new Uint8Array(65_536);

const CUTS: [string, (at: number) => number][] = [
  ["single bytes", () => 1],
  ["single bytes between chunks just large enough to stand alone", (at) => (at % 2 === 0 ? 1 : 2_048)],
  ["chunks just too large to share a block", (at) => (at % 2 === 0 ? 2_047 : 2_050)],
  ["views of a large buffer", () => 3_000],
];

for (const [name, sizeOf] of CUTS) {
  test(`memory stays within four times the bytes for ${name}`, () => {
    const queue = new ReceiveQueue();
    let pushed = 0;
    for (let at = 0; pushed < 262_144; at += 1) {
      const chunk = large.subarray(0, Math.min(sizeOf(at), 262_144 - pushed));
      queue.push(chunk);
      pushed += chunk.length;
    }
    expect(queue.byteLength).toBe(262_144);
    const { held, bytes } = retainedBytes(queue);
    expect(bytes).toBe(262_144);
    expect(held).toBeLessThanOrEqual(4 * 262_144);
  });
}

test("one small chunk that waits makes room for little more than itself", () => {
  const queue = new ReceiveQueue();
  queue.push(large.subarray(0, 100));
  expect(retainedBytes(queue)).toEqual({ held: 356, bytes: 100 });
});

test("bytes come out in the order they went in", () => {
  const queue = new ReceiveQueue();
  const sizes = [1, 5_000, 7, 2_047, 2_048, 4_096, 3, 1];
  let value = 0;
  for (const size of sizes) queue.push(Uint8Array.from({ length: size }, () => value++ & 255));
  const taken: Uint8Array[] = [];
  for (let block = queue.take(); block !== undefined; block = queue.take()) taken.push(block);
  const expected = Uint8Array.from({ length: value }, (_, at) => at & 255);
  expect(Buffer.compare(Buffer.concat(taken), expected)).toBe(0);
  expect(queue.byteLength).toBe(0);
});

test("everything is taken at once in the same order", () => {
  const queue = new ReceiveQueue();
  for (const size of [1, 3_000, 5]) queue.push(new Uint8Array(size).fill(size & 255));
  const whole = queue.takeAll();
  expect([whole.length, whole[0], whole[1], whole[3_005]]).toEqual([3_006, 1, 3_000 & 255, 5]);
  expect(queue.byteLength).toBe(0);
  expect(queue.takeAll().length).toBe(0);
});
