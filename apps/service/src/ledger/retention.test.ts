import { expect, test } from "vitest";
import type { ActDraft } from "../boundary/parts.ts";
import { LEDGER_LIMITS } from "./limits.ts";
import { Retention, type RetentionParts } from "./retention.ts";

const DAY_MS = 86_400_000;
const NOW_MS = 1_000 * DAY_MS;
const MIB = 1024 ** 2;

interface Ledger {
  readonly id: string;
  readonly ageDays: number;
  readonly mib: number;
}

const vm = (letter: string) => `vm_${letter.repeat(16)}`;

function rigOf(ledgers: readonly Ledger[], limits = { days: 90, totalMib: 1_000 }) {
  const living = new Set<string>();
  const order: string[] = [];
  const notes: ActDraft[] = [];
  const resisting = new Set<string>();
  const state = { ledgers: [...ledgers], monotonicMs: 0, lists: 0 };
  const parts: RetentionParts = {
    layout: { ledgers: "/nowhere" },
    ledger: {
      read: (async () => {
        state.lists += 1;
        return {
          ledgers: state.ledgers.map(({ id, ageDays, mib }) => ({
            ...{ vm_id: id, name: null, rows: 1, bytes: mib * MIB, archived: 0 },
            ...{ first_ms: 0, last_ms: NOW_MS - ageDays * DAY_MS },
          })),
        };
      }) as unknown as RetentionParts["ledger"]["read"],
      async remove(id) {
        if (resisting.has(id)) throw new Error("it resists");
        order.push(`remove ${id}`);
        state.ledgers = state.ledgers.filter((each) => each.id !== id);
      },
      async flush(id) {
        order.push(`flush ${id}`);
      },
    },
    boundary: {
      note(draft) {
        notes.push(draft);
        order.push("note");
      },
    },
    hasVm: (id) => living.has(id),
    limits: () => limits,
    policyDigest: () => "digest",
    nowMs: () => NOW_MS,
    monotonicMs: () => state.monotonicMs,
    log: () => undefined,
  };
  const retention = new Retention(parts);
  const left = () => state.ledgers.map(({ id }) => id);
  return { retention, living, order, notes, state, resisting, left };
}

test("ledgers of VMs that are gone go when they are too old; what is there stays", async () => {
  const { retention, living, order, notes, left } = rigOf([
    { id: "host", ageDays: 500, mib: 1 },
    { id: vm("a"), ageDays: 91, mib: 1 },
    { id: vm("b"), ageDays: 89, mib: 1 },
    { id: vm("c"), ageDays: 400, mib: 1 },
  ]);
  living.add(vm("c"));
  await retention.pass();
  expect(left()).toEqual(["host", vm("b"), vm("c")]);
  expect(order).toEqual(["note", "flush host", `remove ${vm("a")}`]);
  expect(notes[0]).toMatchObject({
    vm: null,
    row: { table: "policy_mutations", facts: { key: "ledger.retention", digest_before: "digest" } },
  });
});

test("the oldest go first while all together are too large, and no more than is needed", async () => {
  const { retention, left } = rigOf(
    [
      { id: vm("a"), ageDays: 1, mib: 40 },
      { id: vm("b"), ageDays: 3, mib: 40 },
      { id: vm("c"), ageDays: 2, mib: 40 },
      { id: "host", ageDays: 0, mib: 40 },
    ],
    { days: 90, totalMib: 100 },
  );
  await retention.pass();
  expect(left()).toEqual([vm("a"), "host"]);
});

test("what living VMs and the service have is never taken, however much it is", async () => {
  const { retention, living, left } = rigOf(
    [
      { id: vm("a"), ageDays: 400, mib: 900 },
      { id: "host", ageDays: 400, mib: 900 },
    ],
    { days: 1, totalMib: 64 },
  );
  living.add(vm("a"));
  await retention.pass();
  expect(left()).toHaveLength(2);
});

test("one that resists does not keep the others, and a VM that came meanwhile keeps its own", async () => {
  const { retention, living, resisting, left, notes, order } = rigOf([
    { id: vm("a"), ageDays: 103, mib: 1 },
    { id: vm("b"), ageDays: 102, mib: 1 },
    { id: vm("c"), ageDays: 101, mib: 1 },
  ]);
  resisting.add(vm("a"));
  const push = order.push.bind(order);
  order.push = (...words) => {
    if (words[0] === `remove ${vm("b")}`) living.add(vm("c"));
    return push(...words);
  };
  await retention.pass();
  expect(left()).toEqual([vm("a"), vm("c")]);
  expect(notes).toHaveLength(2);
});

test("it is done once an hour, however often it is called", async () => {
  const { retention, state } = rigOf([]);
  await Promise.all([retention.pass(), retention.pass()]);
  await retention.pass();
  expect(state.lists).toBe(1);
  state.monotonicMs += LEDGER_LIMITS.retentionIntervalMs;
  await retention.pass();
  expect(state.lists).toBe(2);
});
