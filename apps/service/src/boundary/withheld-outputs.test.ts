import { apiFailure } from "@capsem/api";
import { expect, test } from "vitest";
import type { OwnerRun } from "../owner/owner-run.ts";
import { BOUNDARY_LIMITS } from "./limits.ts";
import { WithheldOutputs } from "./withheld-outputs.ts";

const runOf = () => ({}) as OwnerRun;
const stays = new AbortController().signal;
const refusal = apiFailure("policy", "Cannot give it: blocked", { facts: { rule_id: "r" } });

/** What whoever reads it is told: null where it is given. */
const toldOf = (outputs: WithheldOutputs, run: OwnerRun, job: string, signal = stays) =>
  outputs.released(run, job, signal).then(
    () => null,
    (thrown: unknown) => thrown,
  );

test("who comes before the end waits, who comes later is told at once, and each VM has its own jobs", async () => {
  const outputs = new WithheldOutputs();
  const [run, other] = [runOf(), runOf()];
  const [free, kept] = [outputs.hold(run, "free"), outputs.hold(run, "kept")];
  expect([outputs.isUnjudged(run, "free"), outputs.isUnjudged(other, "free")]).toEqual([true, false]);
  expect(await toldOf(outputs, other, "free")).toBeNull();
  const early = [toldOf(outputs, run, "free"), toldOf(outputs, run, "kept")];
  free.free();
  kept.withhold(refusal);
  expect(await Promise.all(early)).toMatchObject([null, { kind: "policy", facts: { rule_id: "r" } }]);
  expect(await toldOf(outputs, run, "free")).toBeNull();
  expect(await toldOf(outputs, run, "kept")).toMatchObject({ kind: "policy", facts: { rule_id: "r" } });
  expect(() => outputs.isUnjudged(run, "kept")).toThrow("blocked");
});

test("what could not be judged is withheld, with why", async () => {
  const outputs = new WithheldOutputs();
  const run = runOf();
  outputs.hold(run, "a").withhold(apiFailure("ledger_away", "Cannot record the act: it is away"));
  expect(await toldOf(outputs, run, "a")).toMatchObject({
    kind: "ledger_away",
    message: expect.stringContaining("could not be judged"),
  });
  outputs.hold(run, "b").withhold(new Error("a mistake of ours, with words that are none of theirs"));
  const told = await toldOf(outputs, run, "b");
  expect(told).toMatchObject({ kind: "internal" });
  expect(String(told)).not.toContain("none of theirs");
});

test("a reader that leaves waits no more; the last one that leaves ends a judgement, and none before it", async () => {
  const outputs = new WithheldOutputs();
  const run = runOf();
  const held = outputs.hold(run, "a");
  const early = new AbortController();
  const left = toldOf(outputs, run, "a", early.signal);
  early.abort();
  expect(await left).toMatchObject({ kind: "cancelled" });
  const judging = held.judging();
  expect(judging.aborted).toBe(false);
  const [one, two] = [new AbortController(), new AbortController()];
  const both = [toldOf(outputs, run, "a", one.signal), toldOf(outputs, run, "a", two.signal)];
  one.abort();
  await both[0];
  expect(judging.aborted).toBe(false);
  two.abort();
  await both[1];
  expect(judging.aborted).toBe(true);
  expect(await toldOf(outputs, run, "a", AbortSignal.abort())).toMatchObject({ kind: "cancelled" });
});

test("what is remembered of one VM is bounded, and what is not judged yet is never forgotten for it", async () => {
  const outputs = new WithheldOutputs();
  const run = runOf();
  outputs.hold(run, "waits");
  for (let n = 0; n <= BOUNDARY_LIMITS.withheldJobsMax; n++) outputs.withhold(run, `job${n}`, refusal);
  expect(outputs.isUnjudged(run, "waits")).toBe(true);
  expect(await toldOf(outputs, run, "job0")).toBeNull();
  expect(await toldOf(outputs, run, `job${BOUNDARY_LIMITS.withheldJobsMax}`)).toMatchObject({
    kind: "policy",
  });
});
