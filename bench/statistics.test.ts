import { expect, test } from "vitest";
import { figure, quantile, renderTable } from "./statistics.ts";

test("quantiles are taken from the sorted samples", () => {
  const sorted = Array.from({ length: 100 }, (_, index) => index + 1);
  expect([quantile(sorted, 0.5), quantile(sorted, 0.99), quantile([7], 0.99)]).toEqual([50, 99, 7]);
});

test("a figure keeps its extremes and the table names every column", () => {
  const made = figure("exec", "ms", [3, 1, 2], "≤ 3");
  expect(made).toMatchObject({ samples: 3, min: 1, p50: 2, max: 3 });
  expect(renderTable([made]).split("\n")[0]).toMatch(/^what\s+unit\s+n\s+min\s+p50\s+p99\s+max\s+promise$/);
});
