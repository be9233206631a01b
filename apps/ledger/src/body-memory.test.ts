import { expect, test } from "vitest";
import { BodyMemory } from "./body-memory.ts";
import { APP_LIMITS } from "./limits.ts";

const bodiesOf = (...texts: string[]) => texts.map((text) => Buffer.from(text));
const textsOf = (bodies: readonly Uint8Array[]) => bodies.map((body) => Buffer.from(body).toString());

test("bodies are copied into memory that is shared, and none needs any", () => {
  const memory = new BodyMemory();
  const { bodies } = memory.lend(bodiesOf("a", "", "bc"));
  expect(textsOf(bodies)).toEqual(["a", "", "bc"]);
  expect(bodies[0]?.buffer).toBeInstanceOf(SharedArrayBuffer);
  expect(memory.lend([]).bodies).toEqual([]);
  expect(textsOf(memory.lend(bodiesOf("")).bodies)).toEqual([""]);
});

test("what is given back is used again, and nothing that is lent", () => {
  const memory = new BodyMemory();
  const first = memory.lend(bodiesOf("aaaa"));
  const second = memory.lend(bodiesOf("bbbb"));
  expect(second.bodies[0]?.buffer).not.toBe(first.bodies[0]?.buffer);
  first.giveBack();
  expect(memory.lend(bodiesOf("ccc")).bodies[0]?.buffer).toBe(first.bodies[0]?.buffer);
  expect(textsOf(second.bodies)).toEqual(["bbbb"]);
});

test("no more is kept than the limit says", () => {
  const memory = new BodyMemory();
  const large = () => memory.lend([Buffer.alloc(APP_LIMITS.bodyMemoryBytesMax)]);
  const [first, second] = [large(), large()];
  first.giveBack();
  second.giveBack();
  expect(large().bodies[0]?.buffer).toBe(first.bodies[0]?.buffer);
  expect(large().bodies[0]?.buffer).not.toBe(second.bodies[0]?.buffer);
});
