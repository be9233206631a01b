import { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import type { ActContext } from "../act.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { execute } from "./exec.ts";

test("a command whose output cannot be had does not run on unseen", async () => {
  const calls: unknown[] = [];
  const run = {
    async call(method: string, params: unknown) {
      calls.push([method, params]);
      return {};
    },
    async open() {
      throw new Failure("quota", "Cannot open a stream: too many are open");
    },
  };
  const context = { signal: new AbortController().signal, timeLeftMs: null, trace: "" };
  const parts = { run: run as unknown as OwnerRun, job: "job_1", monotonicMs: () => 0 };
  const executed = execute(parts, { command: "true" }, context as unknown as ActContext);
  await expect(executed).rejects.toMatchObject({ kind: "quota" });
  expect(calls.at(-1)).toEqual(["job.signal", { job: "job_1", signal: 9, tree: true }]);
});
