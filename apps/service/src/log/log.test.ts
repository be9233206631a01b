import { execFileSync } from "node:child_process";
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LOG_LIMITS } from "../limits.ts";
import { readGatewayPanics } from "../trouble/gateway-panics.ts";
import { readAllLogs } from "./all-logs.ts";
import { LineGate } from "./line-gate.ts";
import { createLineSplitter } from "./line-splitter.ts";
import { LogFile } from "./log-file.ts";
import { ReadBudget, readLogWindow } from "./log-window.ts";
import { VmLogs } from "./vm-logs.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-log-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("a log rotates by size and keeps its last files", async () => {
  const file = new LogFile(join(folder, "a.log"), { fileBytesMax: 100, filesKept: 3 });
  for (let line = 0; line < 20; line++) {
    file.append(`line ${line} ${"x".repeat(40)}`);
    await file.flush();
  }
  await file.close();
  expect(readdirSync(folder).sort()).toEqual(["a.log", "a.log.1", "a.log.2"]);
  const window = await readLogWindow(join(folder, "a.log"), {});
  const kept = window.lines.map((line) => Number(line.split(" ")[1]));
  expect(kept).toEqual([14, 15, 16, 17, 18, 19]);
});

test("a line is written at once, those of the moment after it together, and all for whoever waits for them", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const path = join(folder, "a.log");
    const file = new LogFile(path, { gatherMs: LOG_LIMITS.gatherMs });
    const turns = async (isOver: () => boolean) => {
      for (let left = 100_000; !isOver(); left--) {
        expect(left).toBeGreaterThan(0);
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    const size = () => statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    file.append("one");
    // The clock stands still: nothing but what is said here lets a line go.
    await turns(() => size() === 4 && vi.getTimerCount() === 1);
    file.append("two");
    file.append("three");
    await new Promise((resolve) => setImmediate(resolve));
    expect(size()).toBe(4);
    vi.advanceTimersByTime(LOG_LIMITS.gatherMs);
    await turns(() => size() === 14 && vi.getTimerCount() === 1);
    file.append("four");
    await file.flush();
    expect(readFileSync(path, "utf8")).toBe("one\ntwo\nthree\nfour\n");
    file.append("five");
    await turns(() => vi.getTimerCount() === 1);
    for (let bytes = 0; bytes < LOG_LIMITS.gatherBytesMax; bytes += 1_025) file.append("x".repeat(1_024));
    await turns(() => size() > LOG_LIMITS.gatherBytesMax);
    await file.close();
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

test("a released log goes on where it was", async () => {
  const file = new LogFile(join(folder, "a.log"));
  file.append("one");
  await file.release();
  file.append("two");
  await file.close();
  file.append("three");
  expect(readFileSync(join(folder, "a.log"), "utf8")).toBe("one\ntwo\n");
});

test("a disk that takes no lines is reported once and stops nobody", async () => {
  const errors: unknown[] = [];
  const file = new LogFile(join(folder, "none", "a.log"), { onError: (thrown) => errors.push(thrown) });
  file.append("one");
  await file.flush();
  file.append("two");
  await file.close();
  expect(errors).toHaveLength(1);
});

test.each([
  { what: "the end of a large log", request: { tail: 2 }, lines: ["é 4998", "é 4999"], truncated: true },
  { what: "matches of plain text", request: { grep: "é 12.", tail: 2 }, lines: [], truncated: false },
  {
    what: "no more bytes than asked for",
    request: { maxBytes: 20 },
    lines: ["é 4998", "é 4999"],
    truncated: true,
  },
  { what: "a cut line when none fits", request: { maxBytes: 3 }, lines: ["é "], truncated: true },
  { what: "matches far back", request: { grep: "é 3", tail: 1 }, lines: ["é 3999"], truncated: true },
])("a window holds $what", async ({ request, lines, truncated }) => {
  const file = new LogFile(join(folder, "a.log"));
  for (let line = 0; line < 5000; line++) file.append(`é ${line}`);
  await file.close();
  expect(await readLogWindow(join(folder, "a.log"), request)).toEqual({ lines, truncated });
});

test("a window of no file is empty", async () => {
  expect(await readLogWindow(join(folder, "none"), {})).toEqual({ lines: [], truncated: false });
});

test("without a source all logs share one window, and a talkative one leaves the others their last lines", async () => {
  for (const [name, count] of [
    ["console.log", 3],
    ["owner.jsonl", 500],
  ] as const) {
    const file = new LogFile(join(folder, name));
    for (let line = 0; line < count; line++) file.append(`${line}`);
    await file.close();
  }
  const all = async (request: { tail?: number; maxBytes?: number; grep?: string }) => {
    const { lines, truncated } = await readAllLogs(folder, request);
    return [...lines, truncated];
  };
  expect(await all({ tail: 3 })).toEqual(["console: 1", "console: 2", "owner: 499", true]);
  expect(await all({ tail: 5 })).toEqual(
    ["console: 0", "console: 1", "console: 2", "owner: 498", "owner: 499", true], // after the turns of a short one
  );
  expect(await all({ tail: 0 })).toEqual([true]);
  expect(await all({ maxBytes: 22 })).toEqual(["console: 2", "owner: 499", true]);
  expect(await all({ maxBytes: 1 })).toEqual(["console: 2", true]);
  expect(await all({ grep: "2", tail: 2 })).toEqual(["console: 2", "owner: 492", true]);
  expect(await all({ grep: "none" })).toEqual([false]);
  expect((await all({ maxBytes: 100_000 })).length).toBe(504);
});

test("a huge log of one line costs a bounded time and memory, and its size is said", async () => {
  const path = join(folder, "gateway.jsonl");
  writeFileSync(path, `{"time":"2026-01-01T00:00:00Z","message":"panic"}\n`);
  truncateSync(path, 1_500 * 1024 ** 2);
  let peak = 0;
  const before = process.memoryUsage().rss;
  const watch = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage().rss - before);
  }, 1);
  const window = await readLogWindow(path, { grep: "panic" });
  await readGatewayPanics(folder, null);
  clearInterval(watch);
  expect(window).toEqual({ lines: [], truncated: true });
  expect(peak).toBeLessThan(200 * 1024 ** 2);
});

test("a line above the limit of a line is its beginning, wherever the steps of the reader fall", async () => {
  const path = join(folder, "a.log");
  for (const length of [LOG_LIMITS.lineBytesMax + 1, 5 * LOG_LIMITS.lineBytesMax + 7]) {
    const body = "0123456789".repeat(Math.ceil(length / 10));
    writeFileSync(path, `before\nbegin${body}\nafter\n`);
    const { lines } = await readLogWindow(path, { maxBytes: 1024 ** 2 });
    expect(lines.map((line) => line.length)).toEqual([6, LOG_LIMITS.lineBytesMax, 5]);
    expect(lines[1]?.startsWith("begin0123")).toBe(true);
  }
});

test("a reader that has gone reads no further", async () => {
  const path = join(folder, "a.log");
  writeFileSync(path, "line\n");
  const gone = new AbortController();
  expect(await readLogWindow(path, {}, new ReadBudget(gone.signal))).toMatchObject({ lines: ["line"] });
  gone.abort();
  await expect(readLogWindow(path, {}, new ReadBudget(gone.signal))).rejects.toMatchObject({
    kind: "cancelled",
  });
});

test("what is no file is no log, and holds nobody up", async () => {
  execFileSync("mkfifo", [join(folder, "a.log")]);
  symlinkSync("/etc/passwd", join(folder, "b.log"));
  for (const name of ["a.log", "b.log"]) {
    expect(await readLogWindow(join(folder, name), {})).toEqual({ lines: [], truncated: false });
  }
});

test("lines are split over any chunks and cut at their limit", () => {
  const lines: string[] = [];
  const splitter = createLineSplitter(8, (line) => lines.push(line));
  for (const chunk of ["ab", "c\r\nde\n", "\n", "0123456789", "abc\nend"]) splitter.push(Buffer.from(chunk));
  splitter.end();
  expect(lines).toEqual(["abc", "de", "", "01234567", "end"]);
});

test("a flood of lines is cut, counted and said, and the next line passes when there is room again", () => {
  const lines: string[] = [];
  let nowMs = 0;
  const splitter = createLineSplitter(
    LOG_LIMITS.lineBytesMax,
    (line) => lines.push(line),
    new LineGate(() => nowMs),
  );
  const passes = LOG_LIMITS.burstBytesMax / (LOG_LIMITS.lineCostBytes + 1);
  const flood = Buffer.from("x\n".repeat(32_768));
  for (let chunk = 0; chunk < 10; chunk++) splitter.push(flood);
  expect(lines).toHaveLength(Math.floor(passes));
  splitter.push(Buffer.from("half a li"));
  nowMs += 1_000;
  splitter.push(Buffer.from("ne\nafter\n"));
  const dropped = 10 * 32_768 - Math.floor(passes);
  expect(lines.slice(-3).map((line) => (line.startsWith("{") ? JSON.parse(line) : line))).toEqual([
    { source: "owner", level: "warning", message: expect.any(String), dropped_lines: dropped },
    "half a line",
    "after",
  ]);
  for (let chunk = 0; chunk < 10; chunk++) splitter.push(flood);
  splitter.end();
  expect(lines.at(-1)).toContain("dropped_lines");
});

test("an owner's lines go where their source says, and garbage is the owner's", async () => {
  const logs = await VmLogs.open(join(folder, "logs"));
  for (const line of [
    '{"source":"console","line":"hi \\u001b[0m"}',
    '{"source":"guest","line":"{\\"a\\":1}"}',
    '{"source":"owner","message":"ready","level":"info"}',
    "Segmentation fault",
    '{"source":"nobody"}',
    '{"broken',
  ]) {
    logs.take(line);
  }
  await logs.close();
  const read = (name: string) =>
    readFileSync(join(folder, "logs", name), "utf8")
      .trim()
      .split("\n");
  expect(read("console.log")).toEqual(["hi \\x1b[0m"]);
  expect(read("guest.jsonl")).toEqual(['{"a":1}']);
  expect(read("owner.jsonl")).toHaveLength(4);
  expect(logs.tail()).toEqual([
    "hi \\x1b[0m",
    "ready",
    "Segmentation fault",
    '{"source":"nobody"}',
    '{"broken',
  ]);
  for (let line = 0; line < 500; line++) logs.take(`${line}`);
  expect(logs.tail(1000)).toHaveLength(200);
});
