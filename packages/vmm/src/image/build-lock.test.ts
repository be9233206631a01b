import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { takeBuildLock } from "./build-lock.ts";

let folder = "";
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "capsem-lock-"));
});
afterEach(() => rm(folder, { recursive: true }));
const place = () => ({ folder, pid: process.pid });

test("the second builder waits, is told who builds, and goes on when the first is done", async () => {
  const first = await takeBuildLock(place());
  const order: string[] = [];
  let told: ((pid: string) => void) | undefined;
  const waiting = new Promise<string>((resolve) => {
    told = resolve;
  });
  const second = takeBuildLock({ folder, pid: 1, onWait: (pid) => told?.(pid) }).then((lock) => {
    order.push("second");
    return lock;
  });
  expect(await waiting).toBe(String(process.pid));
  order.push("first ends");
  await first.release();
  await (await second).release();
  expect(order).toEqual(["first ends", "second"]);
});

test("builders of different caches do not wait for each other", async () => {
  const other = await mkdtemp(join(tmpdir(), "capsem-lock-"));
  const one = await takeBuildLock(place());
  const two = await takeBuildLock({ folder: other, pid: process.pid });
  expect(one.name).not.toBe(two.name);
  await Promise.all([one.release(), two.release()]);
  await rm(other, { recursive: true });
});

test("of ten builders at once, each has the lock alone", async () => {
  let holders = 0;
  const build = async (): Promise<void> => {
    const lock = await takeBuildLock(place());
    holders += 1;
    expect(holders).toBe(1);
    await new Promise((resolve) => setImmediate(resolve));
    holders -= 1;
    await lock.release();
  };
  await Promise.all(Array.from({ length: 10 }, build));
});

test("who waits can be stopped", async () => {
  const lock = await takeBuildLock(place());
  const stopper = new AbortController();
  const second = takeBuildLock({ ...place(), signal: stopper.signal, onWait: () => stopper.abort() });
  await expect(second).rejects.toMatchObject({ kind: "cancelled" });
  await lock.release();
});

test("the lock of a killed builder is free", async () => {
  // A descriptor that `flock` locked and passed on is all that a builder holds.
  const script = 'exec 9>>"$0"; flock -x 9; echo holds; exec sleep 60';
  const holder = spawn("bash", ["-c", script, join(folder, "build.lock")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(holder.stdout, "data");
  const exited = once(holder, "exit");
  const lock = takeBuildLock({ ...place(), onWait: () => holder.kill("SIGKILL") });
  await exited;
  await (await lock).release();
});

test("a link in its place is refused", async () => {
  await symlink("/dev/null", join(folder, "build.lock"));
  await expect(takeBuildLock(place())).rejects.toMatchObject({ code: "ELOOP" });
});
