import { expect, test } from "vitest";
import { progressLine } from "./progress-line.ts";

const PROGRESS = { step: "packages", message: "Installing", fraction: 0.509 } as const;

function shown(columns: number | undefined, json: boolean): string {
  let text = "";
  const write = (more: string): void => {
    text += more;
  };
  const line = progressLine({ columns, write }, json);
  line.show(PROGRESS);
  line.show({ step: "wait", message: "Waiting" });
  line.end();
  line.end();
  return text;
}

test("on a terminal one line is written over and left once", () => {
  expect(shown(80, false)).toBe("\r\u001b[Kimage: 50 % Installing\r\u001b[Kimage: Waiting\n");
});

test("a line never wraps on a narrow terminal", () => {
  expect(shown(10, false)).toBe("\r\u001b[Kimage: 50\r\u001b[Kimage: Wa\n");
});

test("elsewhere each step is a line of its own", () => {
  expect(shown(undefined, false)).toBe("image: 50 % Installing\nimage: Waiting\n");
});

test("a program gets one JSON object a line", () => {
  expect(
    shown(80, true)
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line)),
  ).toEqual([PROGRESS, { step: "wait", message: "Waiting" }]);
});
