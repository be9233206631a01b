import { type Deferred, defer } from "@capsem/base";
import type { GuestControlPort, GuestMessage, HostMessage } from "@capsem/wire";
import { expect, test } from "vitest";
import { Gate } from "./gate.ts";
import { Outbox } from "./outbox.ts";
import { Requests, type RequestsOptions } from "./requests.ts";
import { testLog } from "./test-child.ts";

/** A busy machine takes its time; who is done goes on at once. */
const SOON = { interval: 5, timeout: 10_000 };

/** Requests whose work is in the test's hands, and a host that takes all that it is told. */
function rig() {
  const outbox = new Outbox(testLog(), () => 0);
  const fills: Deferred<void>[] = [];
  const listings: Deferred<object>[] = [];
  const turnedOff = defer<void>();
  const unmounts: string[] = [];
  const pend = <T>(list: Deferred<T>[]) => {
    const next = defer<T>();
    list.push(next);
    return next.promise;
  };
  const parts = {
    workload: { release: async () => void unmounts.push("release"), processCount: () => undefined },
    listings: { page: () => pend(listings) },
    transfers: { refuse: () => undefined },
    gate: new Gate(),
    outbox,
    log: testLog(),
    nowMs: () => 0,
    fillHelpers: () => pend(fills),
    endWorkload: async () => undefined,
    powerOff: () => turnedOff.resolve(),
  };
  const requests = new Requests(parts as unknown as RequestsOptions);
  const connect = (reads: Promise<void> = Promise.resolve()) => {
    const told: GuestMessage[] = [];
    const send = (message: GuestMessage) => {
      told.push(message);
      return reads;
    };
    const port = { stream: { reset: () => undefined }, send };
    requests.renew();
    outbox.connect(
      port as unknown as GuestControlPort,
      { name: "ready", body: {} } as unknown as GuestMessage,
    );
    return told;
  };
  const ask = (name: string, id: string, body: object = {}) =>
    requests.handle({ name, body: { id, ...body } } as unknown as HostMessage, 0);
  return { ask, connect, fills, listings, turnedOff, unmounts };
}

const answerTo = (told: readonly GuestMessage[], id: string) =>
  told.find(({ body }) => "id" in body && body.id === id);
const wrongState = { name: "error", body: { kind: "wrong_state" } };
const ack = { name: "ack" };

test("a save that a new lane overtakes is over, and holds no later answer back", async () => {
  const { ask, connect, fills, listings } = rig();
  connect();
  ask("prepare_snapshot", "save", { unmount: false });
  await expect.poll(() => fills.length, SOON).toBe(1);
  const told = connect();
  fills[0]?.resolve();
  await expect.poll(() => answerTo(told, "save"), SOON).toMatchObject(wrongState);
  ask("file_list", "list");
  listings[0]?.resolve({});
  await expect.poll(() => answerTo(told, "list"), SOON).toMatchObject({ name: "file_answer" });
});

test("a save that was given up takes no workload's disk away", async () => {
  const { ask, connect, listings, unmounts } = rig();
  connect();
  ask("file_list", "list");
  ask("prepare_snapshot", "save", { unmount: true });
  const told = connect();
  listings[0]?.resolve({});
  await expect.poll(() => answerTo(told, "save"), SOON).toMatchObject(wrongState);
  expect(unmounts).toEqual([]);
});

test("a thaw gives the save up that is under way", async () => {
  const { ask, connect, fills } = rig();
  const told = connect();
  ask("prepare_snapshot", "save", { unmount: false });
  await expect.poll(() => fills.length, SOON).toBe(1);
  ask("thaw", "thaw");
  fills[0]?.resolve();
  await expect.poll(() => answerTo(told, "save"), SOON).toMatchObject(wrongState);
  await expect.poll(() => answerTo(told, "thaw"), SOON).toMatchObject(ack);
});

test("a save that is overtaken by another leaves that one's frost alone", async () => {
  const { ask, connect, fills, listings } = rig();
  const told = connect();
  ask("file_list", "list");
  ask("prepare_snapshot", "first", { unmount: false });
  ask("prepare_snapshot", "second", { unmount: false });
  listings[0]?.resolve({});
  await expect.poll(() => answerTo(told, "first"), SOON).toMatchObject(wrongState);
  await expect.poll(() => fills.length, SOON).toBe(1);
  ask("file_list", "early");
  await expect.poll(() => answerTo(told, "early"), SOON).toMatchObject(wrongState);
  fills[0]?.resolve();
  await expect.poll(() => answerTo(told, "second"), SOON).toMatchObject(ack);
});

test("a shutdown is answered although the VM is being saved", async () => {
  const { ask, connect, fills, turnedOff } = rig();
  const told = connect();
  ask("prepare_snapshot", "save", { unmount: false });
  await expect.poll(() => fills.length, SOON).toBe(1);
  fills[0]?.resolve();
  await expect.poll(() => answerTo(told, "save"), SOON).toMatchObject(ack);
  ask("shutdown", "off");
  await turnedOff.promise;
  expect(answerTo(told, "off")).toMatchObject(ack);
});

test("a new lane lets nothing start in a machine that shuts down", async () => {
  const { ask, connect, turnedOff } = rig();
  connect();
  ask("shutdown", "off");
  const told = connect();
  ask("file_list", "late");
  await expect.poll(() => answerTo(told, "late"), SOON).toMatchObject(wrongState);
  await turnedOff.promise;
});

test("a host that reads nothing does not keep the machine on", async () => {
  const { ask, connect, turnedOff } = rig();
  connect(defer<void>().promise);
  ask("shutdown", "off");
  await turnedOff.promise;
});
