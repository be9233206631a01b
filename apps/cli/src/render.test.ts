import { expect, test } from "vitest";
import { Output } from "./output.ts";
import type { Powers } from "./powers.ts";
import {
  printable,
  printableJson,
  printableLines,
  renderMoment,
  renderPairs,
  renderTable,
} from "./render.ts";

/** What a terminal acts on, or shows in another order than it is. */
const STEERING = [
  "\u0000",
  "\t",
  "\u001b[2J",
  "\u007f",
  "\u009b2J",
  "\u061c",
  "\u200e",
  "\u200f",
  "\u2028",
  "\u2029",
];
const TURNING = [0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069].map((code) =>
  String.fromCharCode(code),
);
const ALL = [...STEERING, ...TURNING];
const IS_STEERING = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

test.each(ALL)("%j is shown and not acted on, in text, tables, pairs and JSON", (char) => {
  const text = `a${char}b`;
  expect(printable(text)).not.toMatch(IS_STEERING);
  const rows = renderTable(["NAME"], [[text]]) + renderPairs([["name", text]]);
  expect(rows.split("\n").join("")).not.toMatch(IS_STEERING);
  const json = printableJson(JSON.stringify({ [text]: text }));
  expect(json).not.toMatch(IS_STEERING);
  expect(JSON.parse(json)).toEqual({ [text]: text });
});

test("an escape names its character, a line end stays where lines may be, other scripts are left alone", () => {
  expect(printable("\u001b\n\u202e")).toBe("\\x1b\\x0a\\u202e");
  expect(printableLines("one\ntwo\r\u2066")).toBe("one\ntwo\\x0d\\u2066");
  expect(printable("Grüße, שלום, 你好 👩‍💻")).toBe("Grüße, שלום, 你好 👩‍💻");
  expect(printable(printable("\u001b"))).toBe("\\x1b");
});

test("a table whose cells hold line ends has one line a row", () => {
  expect(renderTable(["A", "B"], [["x\ny", "z"]]).split("\n")).toEqual(["A       B", "x\\x0ay  z", ""]);
});

const WIDE = [
  ["1", "process.command.contains('git push')", "people push"],
  ["20", "true", "yes"],
];
const SHRUNK: [number, string[]][] = [
  [
    200,
    [
      "P   MATCH                                 REASON",
      "1   process.command.contains('git push')  people push",
    ],
  ],
  [40, ["P   MATCH                    REASON", "1   process.command.contai…  people push"]],
  [31, ["P   MATCH           REASON", "1   process.comma…  people push"]],
  [20, ["P   MATCH         R…", "1   process.com…  p…"]],
];
test.each(SHRUNK)("a table of %i columns cuts what may be cut, and says so", (columns, lines) => {
  const table = renderTable(["P", "MATCH", "REASON"], WIDE, columns, undefined, ["MATCH", "REASON"]);
  const [head, first] = table.split("\n");
  expect([head, first]).toEqual(lines);
  for (const line of table.split("\n")) expect(line.length).toBeLessThanOrEqual(columns);
});

test("one long cell is cut where others stand behind it, however wide the line; the last one goes on", () => {
  const long = "x".repeat(600);
  const rows = [
    ["1", long, long],
    ["2", "true", "yes"],
  ];
  const table = renderTable(["P", "MATCH", "REASON"], rows, undefined, undefined, ["MATCH", "REASON"]);
  const [head, first, second] = table.split("\n");
  expect(head).toBe(`P  ${"MATCH".padEnd(80)}  REASON`);
  expect(first).toBe(`1  ${"x".repeat(79)}…  ${long}`);
  expect(second).toBe(`2  ${"true".padEnd(80)}  yes`);
  expect(renderTable(["A", "B"], [[long, "b"]])).toContain(`${long}  b`);
});

test("a time of today has no day on a terminal, and always one elsewhere", () => {
  const now = () => Date.parse("2025-01-02T12:00:00Z");
  const at = (isTerminal: boolean, iso: string) =>
    renderMoment(iso, { now, stdout: { isTerminal } as Powers["stdout"] });
  expect(at(true, "2025-01-02T11:59:00.000Z")).toMatch(/^\d\d:\d\d:\d\d$/);
  expect(at(true, "2024-01-02T11:59:00.000Z")).toMatch(/^2024-01-02 /);
  expect(at(false, "2025-01-02T11:59:00.000Z")).toMatch(/^2025-01-02 /);
});

test("what is said, and JSON, reach the terminal without steering it", async () => {
  const written: string[] = [];
  const stream = { write: async (text: string) => void written.push(text) };
  const output = new Output({ stdout: stream, stderr: stream } as unknown as Powers);
  const name = ALL.join("");
  await output.say(`Cannot read "${name}"`);
  await output.line(`read ${name}`);
  await output.json({ name });
  expect(written).toHaveLength(3);
  for (const text of written) expect(text.replace(/\n$/, "")).not.toMatch(IS_STEERING);
});
