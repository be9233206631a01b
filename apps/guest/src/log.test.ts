import { expect, test } from "vitest";
import { createLog } from "./log.ts";

function logged(): { lines: string[]; at: { ms: number }; log: ReturnType<typeof createLog> } {
  const lines: string[] = [];
  const at = { ms: 1_000 };
  return {
    lines,
    at,
    log: createLog(
      (line) => lines.push(line),
      () => at.ms,
    ),
  };
}

test("a line is JSON with time, level and event", () => {
  const { lines, log } = logged();
  log.info("started", { count: 1, nothing: undefined });
  expect(JSON.parse(lines[0] ?? "")).toEqual({ ms: 1_000, level: "info", event: "started", count: 1 });
  expect(lines[0]?.endsWith("\n")).toBe(true);
});

test("a flood is dropped, counted, and ends with time", () => {
  const { lines, at, log } = logged();
  for (let i = 0; i < 1_000; i++) log.warn("again");
  expect(lines.length).toBe(100);
  at.ms += 1_000;
  log.warn("later");
  expect(JSON.parse(lines.at(-1) ?? "")).toMatchObject({ event: "later", dropped: 900 });
});

test("a long line is cut to its event", () => {
  const { lines, log } = logged();
  log.error("large", { detail: "x".repeat(10_000) });
  expect(JSON.parse(lines[0] ?? "")).toEqual({ ms: 1_000, level: "error", event: "large", shortened: true });
});
