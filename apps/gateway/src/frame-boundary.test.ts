import { expect, test } from "vitest";
import { closeFrame, FrameBoundary } from "./frame-boundary.ts";

function frame(payloadBytes: number, isMasked: boolean): Buffer {
  const mask = isMasked ? 0x80 : 0;
  const head =
    payloadBytes < 126
      ? Buffer.of(0x82, mask | payloadBytes)
      : payloadBytes < 65_536
        ? Buffer.of(0x82, mask | 126, payloadBytes >> 8, payloadBytes & 255)
        : Buffer.of(
            0x82,
            mask | 127,
            0,
            0,
            0,
            0,
            0,
            payloadBytes >> 16,
            (payloadBytes >> 8) & 255,
            payloadBytes & 255,
          );
  return Buffer.concat([head, Buffer.alloc(isMasked ? 4 : 0), Buffer.alloc(payloadBytes, 0x88)]);
}

const SIZES = [0, 1, 125, 126, 127, 300, 65_535, 65_536, 70_000];

test("the ends of frames are found whatever the pieces they come in", () => {
  for (const isMasked of [false, true]) {
    const frames = SIZES.map((size) => frame(size, isMasked));
    const ends: number[] = [];
    for (const one of frames) ends.push((ends.at(-1) ?? 0) + one.length);
    const whole = Buffer.concat(frames);
    for (const step of [1, 2, 3, 7, 1000, 65_536, whole.length]) {
      const boundary = new FrameBoundary();
      const found: number[] = [];
      for (let at = 0; at < whole.length; ) {
        const chunk = whole.subarray(at, Math.min(at + step, whole.length));
        const followed = boundary.follow(chunk, true);
        at += followed;
        if (boundary.isBetween) found.push(at);
      }
      expect(found).toEqual(ends);
    }
  }
});

test("a length beyond all numbers never ends", () => {
  const boundary = new FrameBoundary();
  expect(boundary.follow(Buffer.of(0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255), false)).toBe(10);
  expect(boundary.follow(Buffer.alloc(100_000), true)).toBe(100_000);
  expect(boundary.isBetween).toBe(false);
});

test("a close frame is one frame", () => {
  const boundary = new FrameBoundary();
  const bytes = closeFrame(4401, "token replaced");
  expect(boundary.follow(bytes, true)).toBe(bytes.length);
  expect(boundary.isBetween).toBe(true);
  expect(bytes.readUInt16BE(2)).toBe(4401);
});
