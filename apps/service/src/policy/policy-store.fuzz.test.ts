import { test } from "vitest";
import { storeHolds } from "./policy-store.fuzz.ts";
import { useTempPolicies } from "./testing/temp-policy.ts";

const temp = useTempPolicies();
// A longer run: CAPSEM_FUZZ_SEED=7 CAPSEM_FUZZ_ROUNDS=5000 npx vitest run apps/service/src/policy/policy-store.fuzz.test.ts
const seed = Number(process.env.CAPSEM_FUZZ_SEED ?? 1);
const rounds = Number(process.env.CAPSEM_FUZZ_ROUNDS ?? 100);

test(`settings hold what the files say, whatever happens to them, seed ${seed}`, {
  timeout: 600_000,
}, async () => {
  await storeHolds(temp(), seed, rounds);
});
