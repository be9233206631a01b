import { test } from "vitest";
import { fuzzDoor } from "./door.fuzz.ts";

const SEEDS = [1, 20_000, 860_982_701, Math.floor(Math.random() * 2 ** 31)];

for (const seed of SEEDS) {
  test(`the fuzzer finds nothing from seed ${seed}`, async () => {
    console.info(`door.fuzz seed ${seed}`);
    await fuzzDoor(seed, 150);
  }, 60_000);
}
