import { expect, test } from "vitest";
import { paintOf } from "./paint.ts";
import { renderLocal, renderMs, renderTable } from "./render.ts";
import { fakePowers } from "./testing/fake-powers.ts";

const RED = "\u001b[31m";
const DIM = "\u001b[2m";
const END = "\u001b[0m";

test.each([
  [true, {}, true],
  [false, {}, false],
  [true, { NO_COLOR: "1" }, false],
  [true, { NO_COLOR: "" }, true],
  [true, { TERM: "dumb" }, false],
])("on a terminal (%j) with %j there are colours: %j", (isTerminal, env, isPainted) => {
  const { powers } = fakePowers({ isTerminal, env: { ...env } });
  expect(paintOf(powers)("x", "red")).toBe(isPainted ? `${RED}x${END}` : "x");
});

test("colours move no column, and none is left open by a cut", () => {
  const { powers } = fakePowers();
  const rows = [
    ["a", { text: "block", color: "red" as const }, "what it was"],
    ["bbb", { text: "ok", color: null }, "x"],
  ];
  const paint = paintOf(powers);
  const lines = renderTable(["ID", "STATE", "WHAT"], rows, undefined, paint).split("\n");
  expect(lines[1]).toBe(`a    ${RED}block${END}  what it was`);
  expect(lines[2]).toBe("bbb  ok     x");
  const begin = [RED, DIM];
  const plain = (text: string) => [...begin, END].reduce((rest, code) => rest.replaceAll(code, ""), text);
  const count = (text: string, codes: string[]) =>
    codes.reduce((sum, code) => sum + text.split(code).length - 1, 0);
  for (let width = 4; width < 30; width += 1) {
    const cut = renderTable(["ID", "STATE", "WHAT"], rows, width, paint);
    expect(plain(cut)).toBe(renderTable(["ID", "STATE", "WHAT"], rows, width));
    expect(count(cut, [END])).toBe(count(cut, begin));
  }
});

test("a cell of a guest brings no colour of its own", () => {
  const rows = [[{ text: "\u001b[31mred", color: null }]];
  expect(renderTable(["A"], rows)).toBe("A\n\\x1b[31mred\n");
});

test("durations are as long as they matter, and what is no time is shown as it is", () => {
  expect([0.04, 9.96, 12.4, 999, 1_500, 59_900, 65_000, 3_700_000, null].map(renderMs)).toEqual([
    "0.0 ms",
    "10.0 ms",
    "12 ms",
    "999 ms",
    "1.5 s",
    "59.9 s",
    "1 min 5 s",
    "1 h 1 min",
    "-",
  ]);
  expect([renderLocal(null), renderLocal("soon")]).toEqual(["-", "soon"]);
  expect(renderLocal("2025-01-02T03:04:05.678Z")).toMatch(/^2025-01-0[123] \d\d:\d\d:05$/);
});
