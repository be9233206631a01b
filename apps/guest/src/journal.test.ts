import type { GuestMessage } from "@capsem/wire";
import { expect, test } from "vitest";
import { Journal } from "./journal.ts";

const ack = (id: string): GuestMessage => ({ name: "ack", body: { id } });

test("a new id is taken once and repeated ids get the same answer", () => {
  const journal = new Journal(8, 1_000);
  expect(journal.take("a")).toBeUndefined();
  expect(journal.take("a")).toEqual([]);
  journal.record("a", ack("a"), 10, true);
  expect(journal.take("a")).toEqual([ack("a")]);
  expect(journal.take("a")).toEqual([ack("a")]);
});

test("an id with two answers keeps their order", () => {
  const journal = new Journal(8, 1_000);
  journal.take("a");
  const done: GuestMessage = {
    name: "job_done",
    body: { job: "j", exit_code: 0, timed_out: false, stdout_bytes: 0, stderr_bytes: 0, agent_us: 1 },
  };
  journal.record("a", { name: "job_started", body: { id: "a", job: "j" } }, 10, false);
  journal.record("a", done, 10, true);
  expect(journal.take("a")?.map((m) => m.name)).toEqual(["job_started", "job_done"]);
});

test("the oldest settled id is forgotten first, and one under way never", () => {
  const journal = new Journal(3, 1_000);
  journal.take("open");
  for (const id of ["a", "b", "c", "d"]) {
    journal.take(id);
    journal.record(id, ack(id), 1, true);
  }
  expect(journal.size).toBe(3);
  expect(journal.take("open")).toEqual([]);
  expect(journal.take("d")).toEqual([ack("d")]);
  expect(journal.take("a")).toBeUndefined();
});

test("answers together stay below the bound of bytes", () => {
  const journal = new Journal(1_000, 200);
  for (let i = 0; i < 100; i++) {
    journal.take(`id${i}`);
    journal.record(`id${i}`, ack(`id${i}`), 50, true);
    expect(journal.bytes).toBeLessThanOrEqual(200);
  }
  expect(journal.size).toBeLessThan(5);
});

test("an answer for an id that was never taken is not kept", () => {
  const journal = new Journal(8, 1_000);
  journal.record("ghost", ack("ghost"), 10, true);
  expect(journal.size).toBe(0);
  expect(journal.bytes).toBe(0);
});
