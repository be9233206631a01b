import { apiFailure } from "@capsem/api";
import type { Failure } from "@capsem/base";
import { expect, test } from "vitest";
import { contextOf } from "../boundary/testing/contexts.ts";
import { ruleOn } from "../boundary/testing/fake-parts.ts";
import { ALLOWED, EXEC, gate, JOB } from "../boundary/testing/gate.ts";
import { WithheldOutputs } from "../boundary/withheld-outputs.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { recordJobEnd } from "./job-end.ts";

const END = {
  ...{ exit_code: 0, signal: null, timed_out: false, out_of_memory: null, agent_us: 1 },
  ...{ stdout_bytes: 3, stderr_bytes: 0, truncated: false },
};

/** Chunks as an owner sends them, and a job that has ended. */
function runWith(chunks: readonly (readonly [kind: 1 | 2, text: string])[] | "unreadable"): OwnerRun {
  const frames =
    chunks === "unreadable"
      ? []
      : chunks.map(([kind, text]) => {
          const header = Buffer.alloc(5);
          header[0] = kind;
          header.writeUInt32BE(Buffer.byteLength(text), 1);
          return Buffer.concat([header, Buffer.from(text)]);
        });
  return {
    call: async () => END,
    // This owner lives.
    readFailure: async (_thrown: unknown, otherwise: Failure) => otherwise,
    open: async () => {
      if (chunks === "unreadable") throw apiFailure("unresponsive", "Cannot reach the owner");
      return {
        result: { offset: 0, truncated: false },
        stream: { read: async () => frames.shift() ?? null, reset: () => undefined },
      };
    },
  } as unknown as OwnerRun;
}

async function endOf(run: OwnerRun, isHeld: boolean) {
  const { boundary, policy, ledger } = gate();
  policy.rules(ruleOn("process.exec_complete", "block", ' && process.exec.stderr.contains("CANARY")'));
  const withheld = new WithheldOutputs();
  const held = isHeld ? withheld.hold(run, JOB) : null;
  const closed: unknown[] = [];
  const open = { add: () => undefined, close: (...end: unknown[]) => void closed.push(end) };
  const rest = { act: EXEC, decision: ALLOWED, context: contextOf(), boundary, withheld };
  await recordJobEnd({ ...rest, run, job: JOB, open, held });
  const told = await withheld.released(run, JOB, new AbortController().signal).then(
    () => "given",
    ({ kind }: { kind: string }) => kind,
  );
  return { told, closed, judged: ledger.of("security_decision_events").length };
}

test("held output that cannot be read is not given, because nobody has judged it; its row ends all the same", async () => {
  expect(await endOf(runWith("unreadable"), true)).toEqual({
    told: "internal",
    closed: [["done"]],
    judged: 0,
  });
  expect(await endOf(runWith("unreadable"), false)).toEqual({ told: "given", closed: [["done"]], judged: 1 });
});

test("of held output both streams are judged, however much of the other lies before", async () => {
  const much = Array.from({ length: 40 }, () => [1, "x".repeat(30_000)] as const);
  expect(await endOf(runWith([...much, [2, "CANARY"]]), true)).toMatchObject({ told: "policy" });
  // Without a rule that holds it, the row is made of its beginning.
  expect(await endOf(runWith([...much, [2, "CANARY"]]), false)).toMatchObject({ told: "given" });
});

test("a job that never started is no job, and one whose owner is gone is not given", async () => {
  for (const [kind, told, outcome] of [
    ["job_not_found", "given", "failed"],
    ["vm_gone", "vm_gone", "interrupted"],
  ] as const) {
    const run = runWith([]);
    run.call = async () => {
      throw apiFailure(kind, "Cannot wait");
    };
    expect(await endOf(run, true)).toEqual({ told, closed: [[outcome, kind]], judged: 0 });
  }
});
