import { test } from "vitest";
import { fuzz } from "./mux.fuzz.ts";

const SEEDS = [1, 20_000, Math.floor(Math.random() * 2 ** 31)];

for (const seed of SEEDS) {
  test(`the fuzzers find nothing from seed ${seed}`, async () => {
    console.info(`mux.fuzz seed ${seed}`);
    await fuzz(seed, 2);
  }, 60_000);
}
