import { test } from "vitest";
import { fuzz } from "./json.fuzz.ts";

const SEEDS = [1, 20_000, Math.floor(Math.random() * 2 ** 31)];

for (const seed of SEEDS) {
  test(`the fuzzers find nothing from seed ${seed}`, () => {
    console.info(`json.fuzz seed ${seed}`);
    fuzz(seed, 2_000);
  });
}
