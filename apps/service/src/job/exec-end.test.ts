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

test("output and end of a command are asked for together, and nothing is said on the stream at its end", async () => {
  const order: string[] = [];
  const end = { exit_code: 0, signal: null, timed_out: false, out_of_memory: null, agent_us: 1 };
  const stream = {
    end: () => void order.push("stream ended"),
    read: async () => null,
    reset: () => undefined,
  };
  const run = {
    async call(method: string) {
      order.push(method);
      return method === "job.wait" ? { ...end, stdout_bytes: 0, stderr_bytes: 0, truncated: false } : {};
    },
    async open(method: string, { follow }: { follow: unknown }) {
      order.push(`${method} ${follow}`);
      await new Promise((resolve) => setImmediate(resolve));
      order.push("opened");
      return { result: { offset: 0, truncated: false }, stream };
    },
  };
  const context = { signal: new AbortController().signal, timeLeftMs: null, trace: "" };
  const parts = { run: run as unknown as OwnerRun, job: "job_1", monotonicMs: () => 0 };
  const { result } = await execute(parts, { command: "true" }, context as unknown as ActContext);
  expect(result.exit_code).toBe(0);
  expect(order).toEqual(["job.start", "job.read output", "job.wait", "opened", "stream ended"]);
});
