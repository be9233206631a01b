import { expect, test } from "vitest";
import { headerOf, headerProblem } from "./headers.ts";

test("headers that would be two, or none, are refused", () => {
  expect(
    headerProblem([
      ["accept", "a, b"],
      ["x-é".slice(0, 2), "\xe9\t"],
    ]),
  ).toBeNull();
  for (const [name, value] of [
    ["x", "a\r\nhost: evil"],
    ["x", "a\n"],
    ["x", "a\0"],
    ["x", "\u2028"],
    ["x y", "a"],
    ["x:", "a"],
    ["", "a"],
    ["x\r\ny", "a"],
  ] as const) {
    expect([name, value, headerProblem([[name, value]])]).toEqual([name, value, expect.any(String)]);
  }
  expect(headerProblem(Array.from({ length: 129 }, () => ["a", "b"] as [string, string]))).toMatch(/129/);
  expect(headerProblem([["a", "b".repeat(40_000)]])).toMatch(/40001/);
});

test("a header is found in any case", () => {
  expect(
    headerOf(
      [
        ["Content-Type", "a"],
        ["content-type", "b"],
      ],
      "content-type",
    ),
  ).toBe("a");
  expect(headerOf([], "content-type")).toBeUndefined();
});
