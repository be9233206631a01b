import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Health } from "./health.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function watched() {
  const changes: string[] = [];
  const sent: number[] = [];
  const health = new Health({
    ping: async (sequence) => {
      sent.push(sequence);
    },
    onChange: (state) => changes.push(state),
    now: () => Date.now(),
  });
  health.start();
  return { health, changes, sent };
}

test("three missed pings in a row make the guest unresponsive, one answer makes it well", () => {
  const { health, changes, sent } = watched();
  vi.advanceTimersByTime(3_000);
  expect(changes).toEqual([]);
  vi.advanceTimersByTime(1_000);
  expect(changes).toEqual(["unresponsive"]);
  health.onPong({ sequence: sent.at(-1) ?? 0, clock_ms: 1 });
  expect(changes).toEqual(["unresponsive", "ok"]);
});

test("an answer to an old ping does not count", () => {
  const { health, changes, sent } = watched();
  vi.advanceTimersByTime(2_000);
  health.onPong({ sequence: (sent.at(-1) ?? 0) - 1, clock_ms: 1 });
  vi.advanceTimersByTime(2_000);
  expect(changes).toEqual(["unresponsive"]);
});

test("a stopped watch sends nothing", () => {
  const { health, sent } = watched();
  health.stop();
  vi.advanceTimersByTime(5_000);
  expect(sent).toEqual([]);
});
