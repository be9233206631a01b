import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createLineSplitter } from "./line-splitter.ts";
import { LogFile } from "./log-file.ts";
import { readLogWindow } from "./log-window.ts";
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

test("lines are split over any chunks and cut at their limit", () => {
  const lines: string[] = [];
  const splitter = createLineSplitter(8, (line) => lines.push(line));
  for (const chunk of ["ab", "c\r\nde\n", "\n", "0123456789", "abc\nend"]) splitter.push(Buffer.from(chunk));
  splitter.end();
  expect(lines).toEqual(["abc", "de", "", "01234567", "end"]);
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
