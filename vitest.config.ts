import { defineConfig } from "vitest/config";

const everywhere = ["packages/*/src/**", "apps/*/src/**", "guest-image/**", "tools/**", "tests/**"];
// The long counts of a soak take as long as they take; the stage itself has a limit.
const soak = process.env.CAPSEM_SOAK === "1";
const vmTests = everywhere.map((folder) => `${folder}/*.vm.test.ts`);
const proofTests = ["tests/proof/*.proof.test.ts"];
// The dearer agents are for `npm run proof`.
const withAgents = process.env.CAPSEM_PROOF_AGENTS === "1";

export default defineConfig({
  test: {
    testTimeout: 20_000,
    hookTimeout: 60_000,
    projects: [
      {
        extends: true,
        test: {
          name: "host",
          include: everywhere.map((folder) => `${folder}/*.test.ts`),
          exclude: [...vmTests, ...proofTests, "**/node_modules/**", "**/dist/**"],
          // Most of them start processes of their own: a second file at once would take their core.
          maxWorkers: 1,
        },
      },
      {
        extends: true,
        test: {
          name: "vm",
          include: vmTests,
          // Real VMs share two cores: one file at a time.
          fileParallelism: false,
          testTimeout: soak ? 1_800_000 : 120_000,
          hookTimeout: 240_000,
        },
      },
      {
        extends: true,
        test: {
          name: "proof",
          include: proofTests,
          exclude: withAgents ? [] : ["tests/proof/agents.proof.test.ts"],
          // Other people's programs, and real VMs behind them: one file at a time.
          fileParallelism: false,
          testTimeout: 180_000,
          hookTimeout: 240_000,
        },
      },
    ],
  },
});
