import { expect, test } from "vitest";
import { createLog } from "./log.ts";
import { runToEnd } from "./run.ts";

function ending() {
  const seen: unknown[] = [];
  const stderr = { write: (line: string) => void seen.push(JSON.parse(line)) };
  return { seen, end: { stderr, exit: (code: number) => void seen.push(code) } };
}

test("a run that comes to its end is 0, and says nothing", async () => {
  const { seen, end } = ending();
  await runToEnd("proxy", async () => undefined, end);
  expect(seen).toEqual([0]);
});

test("a run that fails is 1, with a last line that says why", async () => {
  const { seen, end } = ending();
  await runToEnd("proxy", () => Promise.reject(new Error("no plan")), end);
  expect(seen).toEqual([{ source: "proxy", level: "error", message: "proxy failed", cause: "no plan" }, 1]);
});

test("a line of the log has its source, its time and its fields", () => {
  const lines: string[] = [];
  createLog(
    "egress",
    (line) => void lines.push(line),
    () => 86_400_000,
  )("info", "ended", { n: 1 });
  expect(lines).toEqual([
    '{"source":"egress","time":"1970-01-02T00:00:00.000Z","level":"info","message":"ended","n":1}\n',
  ]);
});
