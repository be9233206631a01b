import { expect, test } from "vitest";
import { jobStartParams } from "./job-request.ts";
import { OutputCollector } from "./output-collector.ts";
import { outputFrames, parseClientFrame } from "./stream-frames.ts";

test.each([
  { bytes: "abc", max: 10, produced: 3, data: { encoding: "utf8", data: "abc", truncated: false } },
  {
    bytes: "abcdef",
    max: 4,
    produced: 6,
    data: { encoding: "utf8", data: "abcd", truncated: true, total_bytes: 6 },
  },
  {
    bytes: "aé",
    max: 2,
    produced: 3,
    data: { encoding: "utf8", data: "a", truncated: true, total_bytes: 3 },
  },
  {
    bytes: "a🌍",
    max: 4,
    produced: 5,
    data: { encoding: "utf8", data: "a", truncated: true, total_bytes: 5 },
  },
  {
    bytes: "abc",
    max: 10,
    produced: 9,
    data: { encoding: "utf8", data: "abc", truncated: true, total_bytes: 9 },
  },
  { bytes: "", max: 10, produced: 0, data: { encoding: "utf8", data: "", truncated: false } },
])("the first $max bytes of '$bytes' are kept whole", ({ bytes, max, produced, data }) => {
  const collector = new OutputCollector(max);
  for (const byte of Buffer.from(bytes)) collector.add(Uint8Array.of(byte));
  expect(collector.data(produced)).toEqual(data);
});

test("bytes that are no text are base64, also when they end like a cut character", () => {
  const collector = new OutputCollector(10);
  collector.add(Uint8Array.of(0x61, 0xc3));
  expect(collector.data(2)).toEqual({ encoding: "base64", data: "YcM=", truncated: false });
});

test("output frames carry every byte within the limit", () => {
  const bytes = Buffer.alloc(600_000, 7);
  const frames = [...outputFrames(2, bytes)];
  expect(frames.every((frame) => frame.length <= 262_144 && frame[0] === 2)).toBe(true);
  expect(Buffer.concat(frames.map((frame) => frame.subarray(1))).equals(bytes)).toBe(true);
});

test("an empty stdin frame is taken, an empty frame is not", () => {
  expect(parseClientFrame({ isBinary: true, bytes: Uint8Array.of(0) })).toMatchObject({ kind: "stdin" });
  expect(() => parseClientFrame({ isBinary: true, bytes: new Uint8Array(0) })).toThrow("empty");
  expect(() => parseClientFrame({ isBinary: true, bytes: Uint8Array.of(3, 0xff) })).toThrow("not JSON");
});

test("the shorter of the job's limit and the requester's bounds the job", () => {
  const limit = (timeout: number | undefined, left: number | null) =>
    jobStartParams("job_a", { command: "x", timeout_secs: timeout }, { stdin: false, timeLeftMs: left })
      .time_left_ms;
  expect([limit(undefined, null), limit(2, null), limit(undefined, 50), limit(2, 50)]).toEqual([
    undefined,
    2000,
    50,
    50,
  ]);
});

test.each([
  [1.005, 1_005],
  [0.0004, 1],
])("a limit of %d s is whole milliseconds, as the guest takes it", (secs, expected) => {
  const { time_left_ms } = jobStartParams("job", { command: "true", timeout_secs: secs }, { stdin: false });
  expect(time_left_ms).toBe(expected);
});
