import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Failure } from "@capsem/base";
import { expect, onTestFinished, test } from "vitest";
import type { GuestLink } from "./guest-link.ts";
import { Jobs } from "./jobs.ts";

/** Asks of a guest that answers the start of a job so. */
async function asksOf(answer: Failure): Promise<{ asked: [string, unknown][]; known: number }> {
  const folder = mkdtempSync(join(tmpdir(), "owner-jobs-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const asked: [string, unknown][] = [];
  const stream = { end: () => undefined, reset: () => undefined, read: async () => null };
  const link = {
    bulk: () => ({ open: () => stream }),
    requests: {
      ask: async (name: string, body: unknown) => {
        asked.push([name, body]);
        throw answer;
      },
    },
  } as unknown as GuestLink;
  const jobs = new Jobs(link, folder, { now: () => 0, log: () => undefined });
  const job = "job_abcdefghij234567";
  const started = jobs.start({ job, command: "make", stdin: false });
  await expect(started).rejects.toBe(answer);
  return { asked, known: jobs.list().length };
}

test("a job whose start is not answered in time is killed, should the guest begin it yet", async () => {
  const { asked, known } = await asksOf(new Failure("unresponsive", "no answer"));
  const kill = { job: "job_abcdefghij234567", signal: 9, tree: true };
  expect(asked.slice(1)).toEqual([["job_signal", kill]]);
  expect(known).toBe(0);
});

test("a job that the guest refuses is not heard of again", async () => {
  const { asked } = await asksOf(new Failure("command_not_found", "no such command"));
  expect(asked.map(([name]) => name)).toEqual(["job_start"]);
});

test("output whose stream ends is whole before its job is done, and that of a broken stream is not", async () => {
  const folder = mkdtempSync(join(tmpdir(), "owner-jobs-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const reads = [async () => null, async () => Promise.reject(new Failure("reset", "reset by the peer"))];
  const link = {
    bulk: () => ({ open: () => ({ end: () => undefined, reset: () => undefined, read: reads.shift() }) }),
    requests: { ask: async () => ({}) },
  } as unknown as GuestLink;
  const jobs = new Jobs(link, folder, { now: () => 0, log: () => undefined });
  for (const job of ["job_whole", "job_broken"]) await jobs.start({ job, command: "make", stdin: false });
  await new Promise<void>((resolve) => setImmediate(resolve));
  const states = jobs.list().map(({ spool }) => [spool.isWhole, spool.closed]);
  expect(states).toEqual([
    [true, false],
    [false, false],
  ]);
});
