import { expect, test } from "vitest";
import { fuzz } from "./rules.fuzz.ts";

// A longer run: CAPSEM_FUZZ_SEED=1 CAPSEM_FUZZ_ROUNDS=100000 npx vitest run packages/policy/src/rules.fuzz.test.ts
const seed = Number(process.env.CAPSEM_FUZZ_SEED ?? 1);
const rounds = Number(process.env.CAPSEM_FUZZ_ROUNDS ?? 400);

test(`rule files, expressions and batches, seed ${seed}`, { timeout: 600_000 }, () => {
  expect(() => fuzz(seed, rounds)).not.toThrow();
});
