import { test } from "vitest";
import { fuzzMcpFrames } from "./mcp-frame.fuzz.ts";

const SEEDS = [1, 20_000, Math.floor(Math.random() * 2 ** 31)];

for (const seed of SEEDS) {
  test(`the fuzzer finds nothing from seed ${seed}`, () => {
    console.info(`mcp-frame.fuzz seed ${seed}`);
    fuzzMcpFrames(seed, 60);
  });
}
