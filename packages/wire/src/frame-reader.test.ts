import { expect, test } from "vitest";
import { encodeFrame, FRAME_TYPES } from "./frame.ts";
import { FrameReader } from "./frame-reader.ts";

function collector() {
  const frames: { type: number; id: number; payload: Uint8Array }[] = [];
  const faults: { word: number; rest: number }[] = [];
  const reader = new FrameReader({
    frame: (type, id, payload) => {
      frames.push({ type, id, payload });
      return true;
    },
    header: () => true,
    badLength: (word, rest) => faults.push({ word, rest: rest.length }),
  });
  return { frames, faults, reader };
}

const payload = Uint8Array.from({ length: 65_531 }, (_, at) => at & 255);
const frame = encodeFrame(FRAME_TYPES.data, 7, payload);

test("a megabyte fed byte by byte comes out whole", () => {
  const { frames, reader } = collector();
  for (let round = 0; round < 16; round += 1) {
    for (let at = 0; at < frame.length; at += 1) reader.push(frame.subarray(at, at + 1));
  }
  expect(frames.length).toBe(16);
  expect(Buffer.compare(frames[15]?.payload ?? new Uint8Array(0), payload)).toBe(0);
});

test("frames fed in pieces are copied once and no more", () => {
  const { frames, reader } = collector();
  let copied = 0;
  const original = Uint8Array.prototype.set;
  Uint8Array.prototype.set = function (this: Uint8Array, source: ArrayLike<number>, at?: number) {
    copied += source.length;
    original.call(this, source, at);
  };
  try {
    for (let round = 0; round < 100; round += 1) {
      for (let at = 0; at < frame.length; at += 4_096) reader.push(frame.subarray(at, at + 4_096));
    }
  } finally {
    Uint8Array.prototype.set = original;
  }
  expect(frames.length).toBe(100);
  expect(copied).toBeLessThanOrEqual(100 * payload.length);
});

test("a frame within one chunk is not copied", () => {
  const { frames, reader } = collector();
  reader.push(frame);
  expect(frames[0]?.payload.buffer).toBe(frame.buffer);
});

test("every cut of two frames gives the same two frames", () => {
  const bytes = Buffer.concat([
    encodeFrame(FRAME_TYPES.open, 2, Uint8Array.of(0x13, 0x88, 0x61)),
    encodeFrame(FRAME_TYPES.end, 2, new Uint8Array(0)),
  ]);
  for (let first = 0; first <= bytes.length; first += 1) {
    for (let second = first; second <= bytes.length; second += 1) {
      const { frames, reader } = collector();
      reader.push(bytes.subarray(0, first));
      reader.push(bytes.subarray(first, second));
      reader.push(bytes.subarray(second));
      expect(frames.map((f) => [f.type, f.id, f.payload.length])).toEqual([
        [2, 2, 3],
        [5, 2, 0],
      ]);
    }
  }
});

test("a length out of bounds stops the reader before a byte is kept", () => {
  for (const length of [0, 4, 65_537, 0xffff_ffff]) {
    for (const cut of [1, 3, 4, 9]) {
      const { frames, faults, reader } = collector();
      const bytes = new Uint8Array(16);
      new DataView(bytes.buffer).setUint32(0, length);
      for (let at = 0; at < bytes.length; at += cut) reader.push(bytes.subarray(at, at + cut));
      expect(faults.map((fault) => fault.word)).toEqual([length]);
      expect(frames).toEqual([]);
      expect(reader.bufferedBytes).toBeLessThanOrEqual(9);
    }
  }
});
