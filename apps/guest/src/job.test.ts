import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defer } from "@capsem/base";
import type { MuxStream } from "@capsem/wire";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Cgroup } from "./cgroup.ts";
import { Gate } from "./gate.ts";
import { Job } from "./job.ts";
import { TestChild } from "./test-child.ts";
import { Zygote } from "./zygote.ts";

const LIMIT_MS = 5_000;
let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "capsem-job-"));
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
});
afterEach(() => {
  vi.useRealTimers();
  rmSync(folder, { recursive: true, force: true });
});

function rig() {
  const plan = {
    ...{ job: "j", request: new Uint8Array(), program: "p", cwd: "/", stdin: false },
    ...{ cgroup: new Cgroup(join(folder, "j")), timeLeftMs: LIMIT_MS },
  };
  // Its output is no flood.
  let nowMs = 0;
  const clock = () => (nowMs += 1_000);
  const job = new Job(plan, new Gate(), clock, () => undefined);
  const child = new TestChild();
  const zygote = new Zygote(child.asChild);
  const pool = {
    request: async (bytes: Uint8Array) => {
      await zygote.request(bytes);
      return zygote;
    },
  };
  return { job, child, pool };
}

/** A turn of the event loop, whose timers are not the real ones here. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** A host that takes no byte until it is told to. */
function slowStream() {
  const taken = defer<void>();
  const writing = defer<void>();
  const stream = {
    read: () => defer<null>().promise,
    write: () => {
      writing.resolve();
      return taken.promise;
    },
    end: () => undefined,
    reset: () => undefined,
  } as unknown as MuxStream;
  return { stream, taken, writing };
}

for (const [last, end] of [
  ["exit 0", { exitCode: 0 }],
  ["signal 15", { signal: 15 }],
] as const) {
  test(`a job that ends by "${last}" in time has not timed out because the host reads slowly`, async () => {
    const { job, child, pool } = rig();
    const { stream, taken, writing } = slowStream();
    job.attach(stream);
    const running = job.run(pool, () => undefined);
    child.control.push("started 5\n");
    child.stdout.end("words");
    child.stderr.end();
    await writing.promise;
    child.control.push(`${last}\n`);
    for (let turns = 0; turns < 10; turns++) await turn();
    vi.advanceTimersByTime(LIMIT_MS);
    taken.resolve();
    expect(await running).toMatchObject({ ...end, timedOut: false });
  });
}

test("a job that exits by itself as its time is over has not timed out", async () => {
  const { job, child, pool } = rig();
  const running = job.run(pool, () => undefined);
  child.control.push("started 5\n");
  await turn();
  vi.advanceTimersByTime(LIMIT_MS);
  child.stdout.end();
  child.stderr.end();
  child.control.push("exit 3\n");
  expect(await running).toMatchObject({ exitCode: 3, timedOut: false });
});

test("a job that is killed when its time is over has timed out", async () => {
  const { job, child, pool } = rig();
  const running = job.run(pool, () => undefined);
  child.control.push("started 5\n");
  await turn();
  vi.advanceTimersByTime(LIMIT_MS);
  child.stdout.end();
  child.stderr.end();
  child.control.push("signal 9\n");
  expect(await running).toMatchObject({ signal: 9, timedOut: true });
});

test("the time limit reaches a job that many lines came for before its helper", async () => {
  const { job, child, pool } = rig();
  const lines: string[] = [];
  child.control._write = (chunk, _encoding, done) => {
    lines.push(chunk.toString());
    done();
  };
  for (let i = 0; i < 100; i++) job.resize({ cols: 80, rows: 24 });
  vi.advanceTimersByTime(LIMIT_MS);
  const running = job.run(pool, () => undefined);
  child.control.push("started 5\n");
  child.stdout.end();
  child.stderr.end();
  child.control.push("signal 9\n");
  await running;
  expect(lines).toContain("kill 9\n");
});
