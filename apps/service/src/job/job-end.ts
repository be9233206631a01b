import { type OwnerJobEnd, toApiFailure } from "@capsem/api";
import { within } from "@capsem/base";
import type { Decision } from "@capsem/policy";
import { readJobChunks } from "@capsem/wire";
import type { ActContext } from "../act.ts";
import { completeDraft, endFacts, type JobOutput } from "../boundary/command-draft.ts";
import { BOUNDARY_LIMITS } from "../boundary/limits.ts";
import type { ActDraft, Boundary, OpenAct } from "../boundary/parts.ts";
import type { WithheldOutputs } from "../boundary/withheld-outputs.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { OutputCollector } from "./output-collector.ts";

export interface WatchedJob {
  readonly run: OwnerRun;
  readonly job: string;
  readonly act: ActDraft;
  readonly open: OpenAct;
  /** Of the job's start. */
  readonly decision: Decision;
  readonly context: ActContext;
  readonly boundary: Boundary;
  readonly withheld: WithheldOutputs;
}

/** Waits for the end of a job that nobody else need wait for, and records it, whatever it is. Never rejects. */
export async function recordJobEnd(watched: WatchedJob): Promise<void> {
  const { run, job, act, open, decision, context, boundary, withheld } = watched;
  let end: OwnerJobEnd;
  try {
    // As long as the job takes; a lost owner ends every call.
    end = await run.call("job.wait", { job }, { timeoutMs: null });
  } catch (thrown) {
    const { kind } = toApiFailure(thrown);
    return open.close(kind === "vm_gone" ? "interrupted" : "failed", kind);
  }
  const output = await keptOutput(run, job);
  open.add(endFacts(end, output));
  open.close("done");
  // Its bytes have gone by; what was decided of them holds for whoever reads them once more.
  const noted = boundary.noteResult(context, completeDraft(act, end, output), decision);
  if (noted !== "allow") withheld.withhold(run, job);
}

/** The beginning of what a finished job wrote, or null: the row is made without it then. */
async function keptOutput(run: OwnerRun, job: string): Promise<JobOutput | null> {
  try {
    const reading = readKept(run, job, AbortSignal.timeout(BOUNDARY_LIMITS.keptOutputTimeoutMs));
    return await within(reading, BOUNDARY_LIMITS.keptOutputTimeoutMs);
  } catch {
    // Whatever kept us from reading it: the end of the job is recorded without it.
    return null;
  }
}

async function readKept(run: OwnerRun, job: string, signal: AbortSignal): Promise<JobOutput> {
  const { result, stream } = await run.open("job.read", { job, offset: 0, follow: false }, { signal });
  const stdout = new OutputCollector(BOUNDARY_LIMITS.contentBytesMax);
  const stderr = new OutputCollector(BOUNDARY_LIMITS.contentBytesMax);
  let readBytes = 0;
  try {
    for await (const { kind, bytes } of readJobChunks(stream, ["stdout", "stderr"])) {
      (kind === "stdout" ? stdout : stderr).add(bytes);
      readBytes += bytes.length;
      if (readBytes >= BOUNDARY_LIMITS.keptOutputBytesMax) break;
    }
  } finally {
    stream.reset("cancelled");
  }
  const first = (each: OutputCollector) => each.first(BOUNDARY_LIMITS.contentBytesMax);
  const isCut = result.offset > 0 || readBytes >= BOUNDARY_LIMITS.keptOutputBytesMax;
  return { stdout: first(stdout), stderr: first(stderr), isCut };
}
