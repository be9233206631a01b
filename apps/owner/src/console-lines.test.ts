import { expect, test } from "vitest";
import { consoleLines } from "./console-lines.ts";
import { OWNER_LIMITS } from "./limits.ts";

function collect() {
  const lines: { source: string; line: string }[] = [];
  let time = 1000;
  const feed = consoleLines(
    (line) => lines.push(JSON.parse(line)),
    () => time,
  );
  return { lines, feed: (text: string) => feed(Buffer.from(text)), tick: () => (time += 1000) };
}

test("lines are split over chunks, and JSON lines belong to the guest agent", () => {
  const { lines, feed } = collect();
  feed("[ 0.1] ker");
  feed('nel\r\n{"level":"info"}\nrest');
  expect(lines).toEqual([
    { source: "console", line: "[ 0.1] kernel" },
    { source: "guest", line: '{"level":"info"}' },
  ]);
});

test("a flood is counted, not kept, and a line without end stays bounded", () => {
  const { lines, feed, tick } = collect();
  feed("x\n".repeat(OWNER_LIMITS.consoleLinesPerSecond + 40));
  expect(lines).toHaveLength(OWNER_LIMITS.consoleLinesPerSecond);
  tick();
  feed("y\n");
  expect(lines.slice(-2).map(({ line }) => line)).toEqual(["40 lines dropped", "y"]);
  for (let round = 0; round < 10; round += 1) feed("z".repeat(OWNER_LIMITS.consoleLineBytesMax));
  feed("\n");
  expect(lines.at(-1)?.line).toHaveLength(OWNER_LIMITS.consoleLineBytesMax);
});
