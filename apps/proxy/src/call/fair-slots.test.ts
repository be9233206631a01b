import { expect, test, vi } from "vitest";
import { FairSlots } from "./fair-slots.ts";

const limits = { waitingMax: 8, waitingOfOneMax: 4 };
const signal = () => new AbortController().signal;
const LONG_MS = 60_000;

test("owners take turns, and of one owner who came first", async () => {
  const slots = new FairSlots(1, limits);
  const free = slots.takeNow();
  expect(slots.takeNow()).toBeUndefined();
  const order: string[] = [];
  const take = (owner: object, name: string) =>
    slots.take(owner, signal(), LONG_MS).then((release) => {
      order.push(name);
      release();
    });
  const [a, b, c] = [{}, {}, {}];
  const all = [take(a, "a1"), take(a, "a2"), take(a, "a3"), take(b, "b1"), take(c, "c1"), take(b, "b2")];
  free?.();
  free?.();
  await Promise.all(all);
  expect(order).toEqual(["a1", "b1", "c1", "a2", "b2", "a3"]);
  expect(slots.takeNow()).toBeTypeOf("function");
  expect(slots.takeNow()).toBeUndefined();
});

test("who gives up leaves the queue, and takes no place", async () => {
  const slots = new FairSlots(1, limits);
  const free = slots.takeNow();
  const abort = new AbortController();
  const left = slots.take({}, abort.signal, LONG_MS);
  const stays = slots.take({}, signal(), LONG_MS);
  abort.abort(new Error("enough"));
  await expect(left).rejects.toThrow("enough");
  await expect(slots.take({}, abort.signal, LONG_MS)).rejects.toThrow("enough");
  expect(slots.waitingCount).toBe(1);
  free?.();
  expect(await stays).toBeTypeOf("function");
});

test("more than may wait, of one or of all, are refused", async () => {
  const slots = new FairSlots(0, limits);
  const owner = {};
  const ignored = (promise: Promise<unknown>) => promise.catch(() => undefined);
  for (let count = 0; count < 4; count += 1) void ignored(slots.take(owner, signal(), LONG_MS));
  await expect(slots.take(owner, signal(), LONG_MS)).rejects.toMatchObject({ kind: "busy" });
  for (let count = 0; count < 4; count += 1) void ignored(slots.take({}, signal(), LONG_MS));
  await expect(slots.take({}, signal(), LONG_MS)).rejects.toMatchObject({ kind: "busy" });
});

test("who waits too long leaves the queue, and takes no place that comes free just then", async () => {
  vi.useFakeTimers();
  const slots = new FairSlots(1, limits);
  const free = slots.takeNow();
  const late = slots.take({}, signal(), 100);
  const stays = slots.take({}, signal(), LONG_MS);
  vi.advanceTimersByTime(100);
  free?.();
  await expect(late).rejects.toMatchObject({ kind: "timeout" });
  expect(slots.waitingCount).toBe(0);
  (await stays)();
  expect(vi.getTimerCount()).toBe(0);
  expect(slots.takeNow()).toBeTypeOf("function");
  vi.useRealTimers();
});
