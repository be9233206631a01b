import { expect, test } from "vitest";
import { Slots } from "./slots.ts";

test("who finds no place waits in turn, and a place given back twice is one", async () => {
  const slots = new Slots(1, 8);
  const free = await slots.take();
  const order: string[] = [];
  const first = slots.take()?.then((release) => {
    order.push("first");
    release();
  });
  const second = slots.take()?.then(() => void order.push("second"));
  await Promise.resolve();
  expect(order).toEqual([]);
  free?.();
  free?.();
  await Promise.all([first, second]);
  expect(order).toEqual(["first", "second"]);
});

test("who gives up while waiting takes no place, and who gave up before none either", async () => {
  const slots = new Slots(1, 8);
  const free = await slots.take();
  const abort = new AbortController();
  const left = slots.take(abort.signal);
  const stays = slots.take();
  abort.abort(new Error("enough"));
  await expect(left).rejects.toThrow("enough");
  await expect(slots.take(abort.signal)).rejects.toThrow("enough");
  free?.();
  expect(await stays).toBeTypeOf("function");
});

test("more than may wait are refused", async () => {
  const slots = new Slots(0, 1);
  expect(slots.take()).not.toBeNull();
  expect(slots.take()).toBeNull();
});
