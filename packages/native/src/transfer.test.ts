import { spawnSync } from "node:child_process";
import { closeSync, fstatSync, promises, readdirSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { native } from "./native.ts";
import { buildFixture, distDir } from "./native-fixture.ts";

await buildFixture();

const open = new Set<number>();
afterEach(() => {
  for (const fd of open) closeSync(fd);
  open.clear();
});

function pair(): [number, number] {
  const made = native().socketPair("seqpacket");
  for (const fd of made) open.add(fd);
  return made;
}

function close(fd: number): void {
  open.delete(fd);
  native().closeDescriptor(fd);
}

const descriptorCount = () => readdirSync("/proc/self/fd").length;

function kindOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => "nothing",
    (thrown: { kind?: string }) => String(thrown.kind),
  );
}

test("a descriptor comes over later, close-on-exec, while the event loop turns", async () => {
  const [ours, theirs] = pair();
  let turns = 0;
  const timer = setInterval(() => {
    turns += 1;
    // Only a turn of the loop sends: a call that blocked it would wait for ever.
    if (turns === 2) native().sendDescriptors(theirs, Buffer.from("ram"), [ram]);
  }, 1);
  const ram = native().memfdCreate("ram", 4096);
  open.add(ram);
  const { payload, fds } = await native().receiveDescriptorsLater(ours, 16, { timeoutMs: 10_000 });
  clearInterval(timer);
  expect(Buffer.from(payload).toString()).toBe("ram");
  expect(fds.map((fd) => fstatSync(fd).size)).toEqual([4096]);
  for (const fd of fds) native().closeDescriptor(fd);
  expect(turns).toBeGreaterThanOrEqual(2);
});

test("a full socket is waited for without blocking, and the message arrives whole, after those before it", async () => {
  const [ours, theirs] = pair();
  const ram = native().memfdCreate("ram", 77);
  open.add(ram);
  let count = 0;
  const send = (timeoutMs: number, fds: number[] = []) =>
    native().sendDescriptorsLater(ours, Buffer.alloc(60_000, count), fds, { timeoutMs });
  // A message of this kind is taken whole or not at all.
  while ((await kindOf(send(1))) === "nothing") count += 1;
  const last = send(10_000, [ram]);
  for (let i = 0; i <= count; i += 1) {
    const { payload, fds } = await native().receiveDescriptorsLater(theirs, 65_536, { timeoutMs: 10_000 });
    expect([payload.length, payload[0]]).toEqual([60_000, i]);
    expect(fds.map((fd) => fstatSync(fd).size)).toEqual(i === count ? [77] : []);
    for (const fd of fds) native().closeDescriptor(fd);
  }
  await last;
  expect(count).toBeGreaterThan(0);
});

test("a deadline, an abort before and an abort meanwhile each end the wait with their own kind", async () => {
  const [ours] = pair();
  const before = descriptorCount();
  expect(await kindOf(native().receiveDescriptorsLater(ours, 16, { timeoutMs: 5 }))).toBe("EAGAIN");
  expect(await kindOf(native().receiveDescriptorsLater(ours, 16, { signal: AbortSignal.abort() }))).toBe(
    "ECANCELED",
  );
  const abort = new AbortController();
  const waiting = kindOf(
    native().receiveDescriptorsLater(ours, 16, { timeoutMs: 10_000, signal: abort.signal }),
  );
  setImmediate(() => abort.abort());
  expect(await waiting).toBe("ECANCELED");
  expect(descriptorCount()).toBe(before);
});

test("a peer that closes its end is an empty message, and a socket that is none is the kernel's errno", async () => {
  const [ours, theirs] = pair();
  close(theirs);
  expect(await native().receiveDescriptorsLater(ours, 16)).toEqual({ payload: Buffer.alloc(0), fds: [] });
  expect(await kindOf(native().sendDescriptorsLater(ours, Buffer.from("x"), []))).toBe("EPIPE");
  const file = native().memfdCreate("file", 1);
  open.add(file);
  expect(await kindOf(native().receiveDescriptorsLater(file, 16))).toBe("ENOTSOCK");
});

test("what was cut is refused, and none of its descriptors stays open", async () => {
  const [ours, theirs] = pair();
  const ram = native().memfdCreate("ram", 1);
  open.add(ram);
  const before = descriptorCount();
  native().sendDescriptors(theirs, Buffer.from("too long"), [ram, ram]);
  expect(await kindOf(native().receiveDescriptorsLater(ours, 3))).toBe("payload_truncated");
  expect(descriptorCount()).toBe(before);
});

test("a hundred waits at once are all answered, and hold up neither each other nor the pool", async () => {
  const [ours, theirs] = pair();
  const waits = Array.from({ length: 100 }, () =>
    native().receiveDescriptorsLater(ours, 1, { timeoutMs: 10_000 }),
  );
  // On the pool's four threads, the waits would have kept this one out.
  await (await promises.open("/dev/null")).close();
  for (let i = 0; i < 100; i += 1) {
    await native().sendDescriptorsLater(theirs, Uint8Array.of(i), [], { timeoutMs: 10_000 });
  }
  const values = (await Promise.all(waits)).map(({ payload }) => payload[0]);
  expect(values.sort((a = 0, b = 0) => a - b)).toEqual(Array.from({ length: 100 }, (_, i) => i));
});

test("arguments that no caller of ours sends never reach the kernel", () => {
  const [ours] = pair();
  const none = new Uint8Array(0);
  for (const wrong of [
    () => native().sendDescriptorsLater(-1, Buffer.from("x"), []),
    () => native().sendDescriptorsLater(ours, none, []),
    () => native().sendDescriptorsLater(ours, Buffer.from("x"), new Array(17).fill(0)),
    () => native().receiveDescriptorsLater(ours, 0),
    () => native().receiveDescriptorsLater(ours, 65_537),
    () => native().receiveDescriptorsLater(ours, 1, { timeoutMs: 10_001 }),
  ]) {
    expect(wrong).toThrow(/bad|need|many|payload/);
  }
});

test.each(["process.exit(7)", "worker.terminate().then((code) => process.exit(code === 1 ? 7 : code))"])(
  "whoever goes down while a call waits goes down at once: %s",
  (end) => {
    const program = `
      const { Worker } = require("node:worker_threads");
      const wait = (path) => { const addon = require(path); const [ours] = addon.socketPair(1);
        addon.receiveDescriptorsLater(ours, 1, 9000, addon.eventDescriptor()).catch(() => undefined); };
      wait(process.argv[1]);
      const worker = new Worker("(" + wait + ")(require('node:worker_threads').workerData);" +
        "require('node:worker_threads').parentPort.postMessage('waits')", { eval: true, workerData: process.argv[1] });
      worker.on("message", () => ${end});`;
    const startMs = performance.now();
    const { status } = spawnSync(process.execPath, ["-e", program, join(distDir, "native.node")], {
      timeout: 20_000,
    });
    expect(status).toBe(7);
    // Far below the call's own deadline of nine seconds, far above a busy machine.
    expect(performance.now() - startMs).toBeLessThan(8_000);
  },
);
