import { expect, test } from "vitest";
import { Output } from "./output.ts";
import type { Powers } from "./powers.ts";
import { printable, printableJson, printableLines, renderPairs, renderTable } from "./render.ts";

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
