import { describe, expect, test } from "vitest";
import { closingLines, countStage } from "./test-report.mjs";

const root = "/home/x/capsem";
const passed = { status: "passed", fullName: "adds" };
const failed = {
  status: "failed",
  fullName: "group takes away",
  failureMessages: ["\u001b[31mAssertionError: expected 1 to be 2\u001b[39m\n    at a.test.ts:3:4"],
};
const stage = (testResults: unknown[] | null, code = 0) =>
  countStage({ name: "host", report: testResults === null ? null : { testResults }, code, root });
const file = (name: string, assertionResults: unknown[], more = {}) => ({
  ...{ name: `${root}/${name}`, status: "passed", message: "", assertionResults },
  ...more,
});

describe("a stage", () => {
  test("is counted once a test, and a failure is told by file, name and first line", () => {
    const skipped = { status: "pending", fullName: "mounts", meta: { skipReason: "not root" } };
    expect(stage([file("a.test.ts", [passed, failed, skipped], { status: "failed" })], 1)).toEqual({
      passed: 1,
      failures: ["a.test.ts: group takes away: AssertionError: expected 1 to be 2"],
      skips: ["mounts: not root"],
    });
  });

  test("fails by a file that cannot be loaded, or whose hooks fail after its tests", () => {
    const broken = { status: "failed", message: "\nError: Cannot find module" };
    expect(stage([file("b.test.ts", [], broken)], 1).failures).toEqual([
      "b.test.ts: Error: Cannot find module",
    ]);
    expect(stage([file("c.test.ts", [passed], broken)], 1)).toMatchObject({
      passed: 1,
      failures: ["c.test.ts: Error: Cannot find module"],
    });
  });

  test("fails without a report, without tests, and where it ends with a code of its own", () => {
    expect(stage(null, 1).failures).toEqual(["host: no report"]);
    expect(stage([]).failures).toEqual(["host: no tests"]);
    expect(stage([file("a.test.ts", [passed])], 3).failures).toEqual([
      "host: it ended with 3, though no test failed",
    ]);
  });
});

test("the last lines name what failed, bounded, and close with the count", () => {
  const failures = Array.from({ length: 120 }, (_, n) => `${n}.test.ts: ${"long ".repeat(200)}`);
  const lines = closingLines({ passed: 3, failures, skips: ["a: b"], times: [{ name: "types", ms: 1_234 }] });
  expect(lines.slice(0, 2)).toEqual(["skipped  a: b", "times    types 1.2 s"]);
  expect(lines.filter((line) => line.startsWith("failed   "))).toHaveLength(101);
  expect(lines.at(-2)).toBe("failed   and 20 more");
  expect(lines.at(-1)).toBe("3 passed, 120 failed, 1 skipped");
  expect(Math.max(...lines.map((line) => line.length))).toBe(400);
});
