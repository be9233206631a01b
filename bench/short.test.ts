import { spawn } from "node:child_process";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { buildBench } from "../tools/bench-programs.mjs";

const dist = join(import.meta.dirname, "../dist");
const NO_MAKE = 'tools: capsem, guest → builtin does not do "10 MB answer": it has no tool "make"';
/** What no VM is needed for; of each one figure, which must be in the table, and what it says that it leaves out. */
const AREAS = [
  ["policy", "decision, 1000 rules", []],
  ["ledger", "ledger: verify, small rows", []],
  ["ledger-client", "status while 10,000 rows/s are written", []],
  ["status", "status while 24 rules are written", []],
  ["tools", "capsem, guest → builtin: 64 in flight", [NO_MAKE]],
  ["rail", "proxy after these calls", []],
] as const;

beforeAll(() => buildBench(dist));

function shortRun(area: string): Promise<{ code: number | null; text: string }> {
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, [join(dist, "bench.cjs"), area], {
      env: { PATH: process.env.PATH ?? "", CAPSEM_BENCH_SHORT: "1" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let text = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (part: Buffer) => {
        text += part.toString();
      });
    child.on("error", fail);
    child.on("close", (code) => done({ code, text }));
  });
}

// What is measured is no matter here: that it measures what it says is asserted by the bench itself.
test.each(AREAS)("a short run of the bench of %s does all it measures", async (area, figure, leftOut) => {
  const { code, text } = await shortRun(area);
  expect(text).toContain(figure);
  expect(text.split("\n").filter((line) => /is not measured|does not do/.test(line))).toEqual(leftOut);
  expect(code, text).toBe(0);
});
