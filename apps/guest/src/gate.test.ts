import { defer } from "@capsem/base";
import { expect, test } from "vitest";
import { Gate } from "./gate.ts";

test("a closed gate lets nothing start, and idle waits for what is under way", async () => {
  const gate = new Gate();
  const work = defer<void>();
  const events: string[] = [];
  const first = gate.pass(async () => {
    await work.promise;
    events.push("first");
  });
  gate.close();
  const second = gate.pass(async () => {
    events.push("second");
  });
  const idle = gate.idle().then(() => events.push("idle"));
  work.resolve();
  await first;
  await idle;
  expect(events).toEqual(["first", "idle"]);
  gate.open();
  await second;
  expect(events).toEqual(["first", "idle", "second"]);
});

test("work that fails leaves the gate", async () => {
  const gate = new Gate();
  await expect(gate.pass(() => Promise.reject(new Error("no")))).rejects.toThrow("no");
  await gate.idle();
});

test("a gate that is closed again while others wait stays closed for them", async () => {
  const gate = new Gate();
  gate.close();
  let passed = false;
  const waiting = gate.pass(async () => {
    passed = true;
  });
  gate.open();
  gate.close();
  await Promise.resolve();
  await Promise.resolve();
  expect(passed).toBe(false);
  gate.open();
  await waiting;
  expect(passed).toBe(true);
});

test("all who wait for an idle gate are told", async () => {
  const gate = new Gate();
  const work = defer<void>();
  const passing = gate.pass(() => work.promise);
  const told = Promise.all([gate.idle(), gate.idle()]);
  work.resolve();
  await passing;
  expect(await told).toEqual([undefined, undefined]);
});
