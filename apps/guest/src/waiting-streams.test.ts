import { defer } from "@capsem/base";
import type { MuxStream } from "@capsem/wire";
import { expect, test } from "vitest";
import { GUEST_LIMITS } from "./limits.ts";
import { WaitingStreams } from "./waiting-streams.ts";

function testStream(tag: string) {
  const closed = defer<void>();
  const resets: string[] = [];
  const reset = (code: string) => {
    resets.push(code);
    closed.resolve();
  };
  return {
    resets,
    close: () => closed.resolve(),
    stream: { tag, closed: closed.promise, reset } as unknown as MuxStream,
  };
}

test("streams of a lane that was lost keep no place from those of the next", async () => {
  const waiting = new WaitingStreams();
  const old = Array.from({ length: GUEST_LIMITS.rendezvousWaitingMax }, (_, i) => testStream(`old-${i}`));
  for (const { stream } of old) waiting.put(stream);
  for (const { close } of old) close();
  await Promise.resolve();
  const next = testStream("next");
  waiting.put(next.stream);
  expect(next.resets).toEqual([]);
  expect(waiting.take("next")).toBe(next.stream);
  // One place was needed: the others are given out yet, to whoever asks.
  expect(old.filter(({ stream }) => waiting.take(stream.tag) === stream).length).toBe(old.length - 1);
});

test("one stream too many is refused while all others live", () => {
  const waiting = new WaitingStreams();
  const streams = Array.from({ length: GUEST_LIMITS.rendezvousWaitingMax + 1 }, (_, i) =>
    testStream(`s${i}`),
  );
  for (const { stream } of streams) waiting.put(stream);
  expect(streams.map(({ resets }) => resets.length)).toEqual([...streams.slice(1).map(() => 0), 1]);
  for (const { stream } of streams) waiting.take(stream.tag);
});
