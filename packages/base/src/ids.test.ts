import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { EventIds } from "./ids.ts";

test("event ids are 12 hex digits, each the one after the last", () => {
  const ids = new EventIds((bytes) => new Uint8Array(bytes).fill(0x0a));
  expect([ids.next(), ids.next()]).toEqual(["0a0a0a0a0a0a", "0a0a0a0a0a0b"]);
});

test("behind the last id comes the first", () => {
  const ids = new EventIds((bytes) => new Uint8Array(bytes).fill(0xff));
  expect([ids.next(), ids.next(), ids.next()]).toEqual(["ffffffffffff", "000000000000", "000000000001"]);
});

test("where they begin is another place for each maker", () => {
  const firsts = Array.from({ length: 100 }, () => new EventIds((bytes) => randomBytes(bytes)).next());
  expect(new Set(firsts).size).toBe(100);
  expect(firsts.every((id) => /^[0-9a-f]{12}$/.test(id))).toBe(true);
});
