import { defineConfig } from "vitest/config";

const everywhere = ["packages/*/src/**", "apps/*/src/**", "guest-image/**", "tools/**", "tests/**"];
const vmTests = everywhere.map((folder) => `${folder}/*.vm.test.ts`);

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
          exclude: [...vmTests, "**/node_modules/**", "**/dist/**"],
          maxWorkers: 2,
        },
      },
      {
        extends: true,
        test: {
          name: "vm",
          include: vmTests,
          // Real VMs share two cores: one file at a time.
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 240_000,
        },
      },
    ],
  },
});
