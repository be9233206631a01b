import { closeSync, openSync, readdirSync } from "node:fs";
import type { WorkerGrant } from "@capsem/api";
import { native } from "@capsem/native";
import { afterEach, expect, test } from "vitest";
import { readGrants } from "./grants.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

interface Reading {
  readonly granted: WorkerGrant[];
  readonly logged: string[];
  readonly done: Promise<void>;
  readonly stop: AbortController;
  send(text: string, files?: number): void;
  /** The service's end closes. */
  close(): void;
}

const ends: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

/** Its channel is a real one; what is granted is closed at once. */
function startReading(accepts?: (grant: WorkerGrant) => boolean): Reading {
  const [ours, theirs] = native().socketPair("seqpacket");
  const stop = new AbortController();
  const granted: WorkerGrant[] = [];
  const logged: string[] = [];
  const done = readGrants({
    ...{ fd: ours, native: native(), signal: stop.signal },
    ...(accepts === undefined ? {} : { accepts }),
    onGrant: (grant, fd) => {
      closeSync(fd);
      granted.push(grant);
    },
    log: (_level, message) => void logged.push(message),
  });
  let isOpen = true;
  const close = () => {
    if (isOpen) native().closeDescriptor(theirs);
    isOpen = false;
  };
  ends.push(async () => {
    stop.abort();
    close();
    await done;
    native().closeDescriptor(ours);
  });
  return {
    ...{ granted, logged, done, stop, close },
    send(text, files = 1) {
      const fds = Array.from({ length: files }, () => openSync("/dev/null", "r"));
      native().sendDescriptors(theirs, Buffer.from(text), fds);
      for (const fd of fds) closeSync(fd);
    },
  };
}

const grantOf = (name: string) => ({ kind: "proxy" as const, name, generation: 1 });
const descriptors = () => readdirSync("/proc/self/fd").length;

test("grants are taken in order until the service closes its end", async () => {
  const reading = startReading();
  for (const name of ["a", "b"]) reading.send(JSON.stringify(grantOf(name)));
  reading.close();
  await reading.done;
  expect(reading.granted).toEqual([grantOf("a"), grantOf("b")]);
  expect(reading.logged).toEqual([]);
});

test("what is no grant is logged, leaves no descriptor, and the next one counts", async () => {
  const reading = startReading();
  const before = descriptors();
  reading.send("{");
  reading.send(JSON.stringify({ ...grantOf("a"), kind: "stranger" }));
  reading.send(JSON.stringify(grantOf("a")), 2);
  reading.send(JSON.stringify(grantOf("a")), 0);
  reading.send("x".repeat(60_000));
  reading.send(JSON.stringify(grantOf("b")));
  await expect.poll(() => reading.granted, SOON).toEqual([grantOf("b")]);
  expect(reading.logged).toEqual(Array(5).fill("a grant is none"));
  expect(descriptors()).toBe(before);
});

test("one that the process does not take is closed", async () => {
  const reading = startReading(({ kind }) => kind === "client");
  const before = descriptors();
  reading.send(JSON.stringify(grantOf("a")));
  reading.send(JSON.stringify({ ...grantOf("b"), kind: "client" }));
  await expect.poll(() => reading.granted, SOON).toEqual([{ ...grantOf("b"), kind: "client" }]);
  expect(reading.logged).toEqual(["a grant is none"]);
  expect(descriptors()).toBe(before);
});

test("the signal ends the wait, and says nothing", async () => {
  const reading = startReading();
  reading.stop.abort();
  await reading.done;
  expect(reading.logged).toEqual([]);
});

test("a channel that cannot be read ends it, and is logged", async () => {
  const logged: string[] = [];
  const fd = openSync("/dev/null", "r");
  await readGrants({
    ...{ fd, native: native(), signal: new AbortController().signal },
    onGrant: () => undefined,
    log: (_level, message) => void logged.push(message),
  });
  closeSync(fd);
  expect(logged).toEqual(["grants can no longer be read"]);
});
