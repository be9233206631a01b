import { defer } from "@capsem/base";
import type { Client } from "@capsem/sdk";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Output } from "./output.ts";
import type { OutputPower } from "./powers.ts";
import { nodePowers } from "./powers-node.ts";
import { whileStarting } from "./vm-start.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

type Status = Awaited<ReturnType<Client["status"]>>;
type Told = Pick<Status, "accelerator" | "goldens">;
const TCG = { name: "tcg", reason: "no /dev/kvm" } as const;

function start(told: Told) {
  const said: string[] = [];
  const stderr: OutputPower = {
    isTerminal: false,
    size: () => null,
    write: async (data) => {
      said.push(String(data));
    },
  };
  const powers = { ...nodePowers(), stderr, now: () => Date.now() };
  const work = defer<string>();
  const status = vi.fn(async () => told as Status);
  const done = whileStarting({ powers, output: new Output(powers) }, { status }, work.promise);
  return { said, work, status, done };
}

test.each<[string, Told]>([
  ["making the first snapshot", { accelerator: TCG, goldens: { ready: 0, making: 1 } }],
  ["making the snapshot of this size", { accelerator: TCG, goldens: { ready: 1, making: 1 } }],
  ["finding out how VMs run on this machine", { accelerator: null, goldens: { ready: 0, making: 0 } }],
])("a start that waits says so now and then: %s", async (text, told) => {
  const { said, work, done } = start(told);
  await vi.advanceTimersByTimeAsync(12_000);
  expect(said).toEqual([`capsem: ${text}, once (5 s)\n`, `capsem: ${text}, once (10 s)\n`]);
  work.resolve("vm");
  expect(await done).toBe("vm");
  await vi.advanceTimersByTimeAsync(60_000);
  expect(said).toHaveLength(2);
});

test("a quick start asks nothing, and one that waits for nothing of the kind says nothing", async () => {
  const quick = start({ accelerator: TCG, goldens: { ready: 0, making: 1 } });
  quick.work.resolve("vm");
  await quick.done;
  expect(quick.status).not.toHaveBeenCalled();
  const slow = start({ accelerator: TCG, goldens: { ready: 1, making: 0 } });
  await vi.advanceTimersByTimeAsync(20_000);
  expect(slow.said).toEqual([]);
  slow.work.reject(new Error("refused"));
  await expect(slow.done).rejects.toThrow("refused");
  expect(vi.getTimerCount()).toBe(0);
});
