import { expect, test } from "vitest";
import { forwardOnly, type ImageProgress, progressOfLine } from "./progress.ts";

test("lines of mmdebstrap that begin a phase are progress, others are not", () => {
  expect(progressOfLine("I: extracting archives...")).toMatchObject({ step: "packages", fraction: 0.14 });
  expect(progressOfLine("Setting up bash")).toBeUndefined();
});

test("the fraction never goes back", () => {
  const seen: ImageProgress[] = [];
  const show = forwardOnly((progress) => seen.push(progress));
  show({ step: "packages", message: "a", fraction: 0.5 });
  show({ step: "kernel", message: "b", fraction: 0.2 });
  show({ step: "kernel", message: "c" });
  expect(seen.map((progress) => progress.fraction)).toEqual([0.5, 0.5, undefined]);
});
