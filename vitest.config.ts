import { defineConfig } from "vitest/config";
import { hostTests } from "./tools/host-tests.mjs";
import { WAIT_MS } from "./tools/test-limits.ts";

const everywhere = ["packages/*/src/**", "apps/*/src/**", "guest-image/**", "tests/**"];
// The long counts of a soak take as long as they take; the stage itself has a limit.
const soak = process.env.CAPSEM_SOAK === "1";
const vmTests = everywhere.map((folder) => `${folder}/*.vm.test.ts`);
const proofTests = ["tests/proof/*.proof.test.ts"];
// The dearer agents are for `npm run proof`.
const withAgents = process.env.CAPSEM_PROOF_AGENTS === "1";
const { unit, process: withProcesses, alone } = hostTests(import.meta.dirname);
// What starts programs waits for them two thirds of its time.
const [UNIT_WORKERS, PROCESS_WORKERS] = [2, 3];

export default defineConfig({
  test: {
    // For what hangs: no test is judged by how fast the machine is.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: WAIT_MS } },
    setupFiles: ["tools/test-setup.ts"],
    projects: [
      {
        extends: true,
        // Loading the same modules for each file anew took longer than most tests.
        test: {
          name: "unit",
          include: unit,
          isolate: false,
          maxWorkers: UNIT_WORKERS,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: "process",
          include: withProcesses,
          isolate: false,
          maxWorkers: PROCESS_WORKERS,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: { name: "alone", include: alone, maxWorkers: PROCESS_WORKERS, sequence: { groupOrder: 2 } },
      },
      {
        extends: true,
        test: {
          name: "vm",
          include: vmTests,
          sequence: { groupOrder: 3 },
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
          sequence: { groupOrder: 4 },
          exclude: withAgents
            ? []
            : ["tests/proof/agents.proof.test.ts", "tests/proof/guest-agent.proof.test.ts"],
          // Other people's programs, and real VMs behind them: one file at a time.
          fileParallelism: false,
          testTimeout: 180_000,
          hookTimeout: 240_000,
        },
      },
    ],
  },
});
