import { expect, test } from "vitest";
import { parseTimeLeft } from "./time-left.ts";

test.each([
  [undefined, null],
  ["1", 1],
  ["30000", 30_000],
  ["2147483647", 2_147_483_647],
  ["2147483648", 2_147_483_647],
  ["4294967296", 2_147_483_647],
  ["99999999999999999999", 2_147_483_647],
])("a time left of %j is %j", (header, expected) => {
  expect(parseTimeLeft(header)).toBe(expected);
});

test.each([
  "",
  " ",
  "0",
  "00",
  "-1",
  "+1",
  "1.5",
  "1e300",
  "1e3",
  "0x10",
  "Infinity",
  "NaN",
  "5, 6",
  "9".repeat(21),
])("a time left of %j is refused", (header) => {
  expect(() => parseTimeLeft(header)).toThrow(expect.objectContaining({ kind: "invalid_input" }));
});
