import { expect, onTestFinished, test, vi } from "vitest";
import { GUEST_LIMITS } from "./limits.ts";
import { TestChild, testLog } from "./test-child.ts";
import { Traffic } from "./traffic.ts";

const MARKER = new Uint8Array(32);

test("a relay that the machine has no room to start is started later, and the agent goes on", async () => {
  const log = testLog();
  const children: TestChild[] = [];
  let refusals = 2;
  const traffic = new Traffic({
    log,
    start: () => {
      if (refusals > 0) {
        refusals -= 1;
        throw Object.assign(new Error("spawn ENOMEM"), { code: "ENOMEM" });
      }
      const child = new TestChild();
      children.push(child);
      child.stdin.on("data", () => child.say(child.heard.startsWith("init ") ? "ready" : "?"));
      return child.asChild;
    },
  });
  await traffic.open(5);
  expect(children.length).toBe(1);
  expect(log.events).toEqual(["traffic relay ended", "traffic relay ended"]);
  const [child] = children;
  child?.stdin.removeAllListeners("data");
  child?.stdin.on("data", () => child.say("ok 7"));
  await traffic.reopen(MARKER, 7);
  await traffic.close();
});

test("a workload that ends while its relay cannot be started leaves nothing to wait for", async () => {
  const traffic = new Traffic({
    log: testLog(),
    start: () => {
      throw Object.assign(new Error("spawn EAGAIN"), { code: "EAGAIN" });
    },
  });
  const opening = traffic.open(5);
  await traffic.close();
  await opening;
  await expect(traffic.reopen(MARKER, 1)).rejects.toMatchObject({ kind: "wrong_state" });
});

test("an order that waits for a relay which ends before it is ready is told to the next one", async () => {
  const children: TestChild[] = [];
  const traffic = new Traffic({
    log: testLog(),
    start: () => {
      const child = new TestChild();
      const isFirst = children.push(child) === 1;
      child.stdin.on("data", (chunk: Buffer) => {
        if (!chunk.toString().startsWith("init ")) child.say("ok 3");
        else if (isFirst) child.kill();
        else child.say("ready");
      });
      return child.asChild;
    },
  });
  const opening = traffic.open(5);
  await Promise.all([traffic.reopen(MARKER, 3), opening]);
  expect(children.length).toBe(2);
  await traffic.close();
});

test("a relay that hangs is killed, whether it was ready or not, and another one takes its place", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const children: TestChild[] = [];
  const traffic = new Traffic({
    log: testLog(),
    start: () => {
      const child = new TestChild();
      const number = children.push(child);
      child.stdin.on("data", (chunk: Buffer) => {
        const isFirst = chunk.toString().startsWith("init ");
        // The first says nothing at all, the second only that it is there.
        if (isFirst && number > 1) child.say("ready");
        else if (!isFirst && number > 2) child.say("ok 3");
      });
      return child.asChild;
    },
  });
  const pass = async (ms: number) => {
    await vi.advanceTimersByTimeAsync(ms);
    for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve));
  };
  const opening = traffic.open(5);
  await pass(GUEST_LIMITS.trafficAnswerTimeoutMs);
  await opening;
  expect(children[0]?.signalCode).toBe("SIGKILL");
  await pass(GUEST_LIMITS.trafficRetryMs);
  const unheard = traffic.reopen(MARKER, 3);
  unheard.catch(() => undefined);
  await pass(GUEST_LIMITS.trafficAnswerTimeoutMs);
  await expect(unheard).rejects.toMatchObject({ kind: "internal" });
  expect(children[1]?.signalCode).toBe("SIGKILL");
  await pass(GUEST_LIMITS.trafficRetryMs);
  await traffic.reopen(MARKER, 3);
  expect(children.length).toBe(3);
  await traffic.close();
});
