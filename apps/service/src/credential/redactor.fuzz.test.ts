import { expect, test } from "vitest";
import { fuzz } from "./redactor.fuzz.ts";

// A longer run: CAPSEM_FUZZ_SEED=1 CAPSEM_FUZZ_ROUNDS=100000 npx vitest run apps/service/src/credential/redactor.fuzz.test.ts
const seed = Number(process.env.CAPSEM_FUZZ_SEED ?? 1);
const rounds = Number(process.env.CAPSEM_FUZZ_ROUNDS ?? 600);

test(`secrets in texts, however they are written, seed ${seed}`, { timeout: 600_000 }, () => {
  expect(() => fuzz(seed, rounds)).not.toThrow();
});
