import { expect, test } from "vitest";
import { encodeHelperRequest, type HelperRequest, parseReport } from "./helper-protocol.ts";

const base: HelperRequest = { op: "exec", init: 42, uid: 1000, gid: 1000, groups: [] };

/** Tag and value of each field, in order. */
function fields(request: HelperRequest): [number, string][] {
  const bytes = Buffer.from(encodeHelperRequest(request));
  expect(bytes.readUInt32BE(0)).toBe(bytes.length - 4);
  const found: [number, string][] = [];
  let at = 4;
  while (at < bytes.length) {
    const length = bytes.readUInt32BE(at + 1);
    found.push([bytes.readUInt8(at), bytes.toString("hex", at + 5, at + 5 + length)]);
    at += 5 + length;
  }
  expect(at).toBe(bytes.length);
  return found;
}

test("the request of the protocol page has its fields", () => {
  const found = fields({ ...base, args: ["true"], cwd: "/workspace" });
  expect(found.sort(([a], [b]) => a - b)).toEqual([
    [1, "01"],
    [2, "0000002a"],
    [4, "74727565"],
    [6, "2f776f726b7370616365"],
    [7, "000003e8"],
    [8, "000003e8"],
  ]);
});

test("repeated fields keep their order, and widths are those of the page", () => {
  const found = fields({
    ...base,
    args: ["a", "", "c"],
    env: ["A=1"],
    groups: [27, 44],
    flags: 1,
    cols: 80,
    rows: 24,
    offset: 2 ** 40,
  });
  expect(found.filter(([tag]) => tag === 4).map(([, value]) => value)).toEqual(["61", "", "63"]);
  expect(found.filter(([tag]) => tag === 9).map(([, value]) => value)).toEqual(["0000001b", "0000002c"]);
  expect(found.find(([tag]) => tag === 15)?.[1]).toBe("0000010000000000");
  expect(found.find(([tag]) => tag === 11)?.[1]).toBe("00000050");
});

test.each([
  ["a NUL in an argument", { args: ["a\0b"] }, "invalid_input"],
  ["a NUL in a path", { path: "a\0" }, "invalid_input"],
  ["too many arguments", { args: Array.from({ length: 16_385 }, () => "") }, "too_large"],
  ["too many entries", { env: Array.from({ length: 4_097 }, () => "A=") }, "too_large"],
  ["too many bytes", { args: ["x".repeat(2_100_000)] }, "too_large"],
])("%s is refused before it is sent", (_, more, kind) => {
  expect(() => encodeHelperRequest({ ...base, ...more })).toThrow(expect.objectContaining({ kind }));
});

test.each([
  ["started 57", { kind: "started", pid: 57 }],
  ["exit 0", { kind: "exit", code: 0, held: false }],
  ["exit 3 held", { kind: "exit", code: 3, held: true }],
  ["signal 9", { kind: "signal", signal: 9, held: false }],
  ["signal 11 core", { kind: "signal", signal: 11, held: false }],
  ["signal 11 core held", { kind: "signal", signal: 11, held: true }],
  ["data 12", { kind: "data", bytes: 12 }],
  ["size 0", { kind: "size", bytes: 0 }],
  ["file 65536 5", { kind: "file", bytes: 65536, fd: 5 }],
  ["ready", { kind: "ready" }],
  ["ok", { kind: "ok", words: "" }],
  ["ok 12", { kind: "ok", words: "12" }],
  ["error exec ENOENT No such file", { kind: "error", step: "exec", errno: "ENOENT", text: "No such file" }],
  ["error sync EIO", { kind: "error", step: "sync", errno: "EIO", text: "" }],
])("the line %j is read", (line, report) => {
  expect(parseReport(line)).toEqual(report);
});

test.each([
  "",
  "exit",
  "exit 256",
  "exit -1",
  "exit 1 2",
  "exit 1 more",
  "exit 1.5",
  "signal 65",
  "started",
  "started x",
  "started 99999999999",
  "data 99999999",
  "data 1 2",
  "size -1",
  "file 65536",
  "file 65536 5 6",
  "file 65536 -1",
  "file 65536 1024",
  "ready now",
  "error",
  "error exec",
  "error exec enoent",
  "EXIT 0",
  " exit 0",
])("the line %j is none of the protocol", (line) => {
  expect(parseReport(line)).toBeUndefined();
});
