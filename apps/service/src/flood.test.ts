import { expect, test } from "vitest";
import { createVm, useRigs } from "./testing/use-rigs.ts";

const rigWith = useRigs();

/** Without the gate a single answer waits twice as long for short lines; with it all take half a second. */
const ALL_ANSWERS_MS = 10_000;

test.each([
  ["short lines", "x"],
  ["lines of its own", JSON.stringify({ source: "owner", level: "info", message: "x".repeat(100) })],
  ["long lines", "x".repeat(60_000)],
])(
  "an owner that says %s without end holds up no other answer, and what is dropped is said",
  async (_what, line) => {
    const rig = await rigWith({ script: { flood: line } });
    const id = await createVm(rig);
    const started = performance.now();
    for (let round = 0; round < 60; round++) expect((await rig.client.get("/health")).status).toBe(200);
    expect(performance.now() - started).toBeLessThan(ALL_ANSWERS_MS);
    const told = async () => {
      const path = `/vms/${id}/logs?source=owner&grep=dropped_lines`;
      return (await rig.client.get(path)).json<{ lines: string[] }>().lines.length;
    };
    await expect.poll(told, { timeout: 20_000 }).toBeGreaterThan(0);
  },
);
