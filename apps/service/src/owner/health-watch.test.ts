import { Failure } from "@capsem/base";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { TIMES } from "../limits.ts";
import { watchHealth } from "./health-watch.ts";
import type { OwnerRun } from "./owner-run.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** An owner that answers at once, or to nothing while it is frozen. */
function watched() {
  const asked: number[] = [];
  const told: string[] = [];
  const owner = {
    isFrozen: false,
    asked,
    told,
    health: { owner: "ok", guest: "ok" },
    isLost: false,
    lost: new Promise<never>(() => undefined),
    onHealth: () => undefined,
    call: async (_method: string, _params: object, { timeoutMs }: { timeoutMs: number }) => {
      asked.push(performance.now());
      if (!owner.isFrozen) return {};
      await new Promise((resolve) => setTimeout(resolve, timeoutMs));
      throw new Failure("vm_unresponsive", "it does not answer", { cause: new Failure("timeout", "late") });
    },
  };
  watchHealth(owner as unknown as OwnerRun, () => told.push(owner.health.owner));
  return owner;
}

test("a frozen owner is told of within an interval and three time limits, whenever it froze", async () => {
  for (const atMs of [0, 1, 500, 999]) {
    const owner = watched();
    await vi.advanceTimersByTimeAsync(10 * TIMES.pingIntervalMs + atMs);
    expect(owner.told).toEqual([]);
    owner.isFrozen = true;
    const boundMs = TIMES.pingIntervalMs + TIMES.pingsMissedMax * TIMES.pingTimeoutMs;
    // A timer of no time takes a millisecond.
    await vi.advanceTimersByTimeAsync(boundMs + TIMES.pingsMissedMax);
    expect(owner.told).toEqual(["unresponsive"]);
    owner.isFrozen = false;
    await vi.advanceTimersByTimeAsync(TIMES.pingIntervalMs + TIMES.pingTimeoutMs);
    expect(owner.told).toEqual(["unresponsive", "ok"]);
  }
});

test("an owner that answers is asked once in an interval", async () => {
  const owner = watched();
  await vi.advanceTimersByTimeAsync(20 * TIMES.pingIntervalMs);
  expect(owner.asked).toHaveLength(20);
});
