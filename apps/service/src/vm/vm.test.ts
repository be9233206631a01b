import { VM_STATES } from "@capsem/api";
import { expect, test } from "vitest";
import { AFTER_RESTART, isLegalMove, MOVES } from "./lifecycle-table.ts";

test("the legal moves are these and no others", () => {
  const legal = VM_STATES.flatMap((from) =>
    [...VM_STATES, "gone" as const].filter((to) => isLegalMove(from, to)).map((to) => `${from} → ${to}`),
  );
  expect(legal).toMatchInlineSnapshot(`
    [
      "creating → starting",
      "creating → failed",
      "creating → deleting",
      "starting → running",
      "starting → stopping",
      "starting → failed",
      "starting → deleting",
      "running → stopping",
      "running → stopped",
      "running → failed",
      "running → deleting",
      "stopping → stopped",
      "stopping → deleting",
      "stopped → starting",
      "stopped → deleting",
      "failed → starting",
      "failed → deleting",
      "deleting → gone",
    ]
  `);
});

test("a delete is legal in every state but its own", () => {
  for (const state of VM_STATES) expect(isLegalMove(state, "deleting")).toBe(state !== "deleting");
});

test("a restart never leaves a VM in a state that needs a process", () => {
  for (const state of VM_STATES) {
    for (const move of Object.values(AFTER_RESTART[state])) {
      if (move === "keep") expect(["stopped", "failed"]).toContain(state);
    }
  }
  expect(Object.keys(AFTER_RESTART)).toEqual(Object.keys(MOVES));
});
