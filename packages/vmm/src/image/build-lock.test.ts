import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { takeBuildLock } from "./build-lock.ts";

/** A name that no other run of the tests uses. */
function place(name: string): { path: string; userId: number; pid: number } {
  return { path: `/test/${process.pid}/${name}`, userId: 0, pid: process.pid };
}

test("the second builder waits, is told who builds, and goes on when the first is done", async () => {
  const options = place("two");
  const first = await takeBuildLock(options);
  const order: string[] = [];
  let told: ((pid: string) => void) | undefined;
  const waiting = new Promise<string>((resolve) => {
    told = resolve;
  });
  const second = takeBuildLock({ ...options, pid: 1, onWait: (pid) => told?.(pid) }).then((lock) => {
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
  const one = await takeBuildLock(place("a"));
  const two = await takeBuildLock(place("b"));
  expect(one.name).not.toBe(two.name);
  await Promise.all([one.release(), two.release()]);
});

test("of ten builders at once, each has the lock alone", async () => {
  const options = place("ten");
  let holders = 0;
  const build = async (): Promise<void> => {
    const lock = await takeBuildLock(options);
    holders += 1;
    expect(holders).toBe(1);
    await new Promise((resolve) => setImmediate(resolve));
    holders -= 1;
    await lock.release();
  };
  await Promise.all(Array.from({ length: 10 }, build));
});

test("who waits can be stopped", async () => {
  const options = place("stop");
  const lock = await takeBuildLock(options);
  const stopper = new AbortController();
  const second = takeBuildLock({ ...options, signal: stopper.signal, onWait: () => stopper.abort() });
  await expect(second).rejects.toMatchObject({ kind: "cancelled" });
  await lock.release();
});

test("the lock of a killed builder is free", async () => {
  const options = place("killed");
  const probe = await takeBuildLock(options);
  await probe.release();
  const address = `\\0capsem-image-${probe.name}`;
  const script = `require("net").createServer().listen("${address}", () => console.log("holds"))`;
  const holder = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  await once(holder.stdout, "data");
  const exited = once(holder, "exit");
  const lock = takeBuildLock(options);
  holder.kill("SIGKILL");
  await exited;
  await (await lock).release();
});
