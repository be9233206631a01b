import { apiFailure, type OwnerJobEnd, toApiFailure } from "@capsem/api";
import { Failure, within } from "@capsem/base";
import type { Decision } from "@capsem/policy";
import { readJobChunks } from "@capsem/wire";
import type { ActContext } from "../act.ts";
import { completeDraft, endFacts, type JobOutput } from "../boundary/command-draft.ts";
import { BOUNDARY_LIMITS } from "../boundary/limits.ts";
import type { ActDraft, Boundary, OpenAct, ResultDraft } from "../boundary/parts.ts";
import type { HeldOutput, WithheldOutputs } from "../boundary/withheld-outputs.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { OutputCollector } from "./output-collector.ts";

export interface WatchedJob {
  readonly run: OwnerRun;
  readonly job: string;
  readonly act: ActDraft;
  /** Null: its row has ended already, with its caller. */
  readonly open: OpenAct | null;
  /** Of the job's start. */
  readonly decision: Decision;
  readonly context: ActContext;
  readonly boundary: Boundary;
  readonly withheld: WithheldOutputs;
  /** Null: its bytes go out as they come. */
  readonly held: HeldOutput | null;
}

/**
 * Waits for the end of a job that nobody else need wait for, records it, whatever it is, and has its output judged. Of
 * a held one nobody has seen a byte before. Never rejects.
 */
export async function recordJobEnd(watched: WatchedJob): Promise<void> {
  const { run, job, act, open, held } = watched;
  let end: OwnerJobEnd;
  try {
    // As long as the job takes; a lost owner ends every call.
    end = await run.call("job.wait", { job }, { timeoutMs: null });
  } catch (thrown) {
    const { kind } = toApiFailure(thrown);
    open?.close(kind === "vm_gone" ? "interrupted" : "failed", kind);
    // No such job: it never started, and wrote nothing.
    if (kind === "job_not_found") held?.free();
    else held?.withhold(thrown);
    return;
  }
  const kept = await keptOutput(run, job, held !== null);
  const output = kept instanceof Failure ? null : kept;
  open?.add(endFacts(end, output));
  open?.close("done");
  const result = completeDraft(act, end, output);
  if (held === null) noteOutput(watched, result);
  else if (kept instanceof Failure) held.withhold(kept);
  else await judgeHeld(watched, held, result);
}

/** Its bytes have gone by; what was decided of them holds for whoever reads them once more. */
function noteOutput(
  { boundary, context, decision, withheld, run, job }: WatchedJob,
  result: ResultDraft,
): void {
  if (boundary.noteResult(context, result, decision) === "allow") return;
  const why = `Cannot give the output of job "${job}": it was judged, and is withheld`;
  withheld.withhold(run, job, apiFailure("policy", why));
}

/** What a person is asked then is the job's question, and not the client's that began it: others may wait for it. */
async function judgeHeld(
  { boundary, context, decision }: WatchedJob,
  held: HeldOutput,
  result: ResultDraft,
): Promise<void> {
  try {
    const asking = { ...context, timeLeftMs: null, signal: held.judging() };
    await boundary.judgeResult(asking, result, decision);
    held.free();
  } catch (thrown) {
    held.withhold(thrown);
  }
}

/** The beginning of what a finished job wrote, or why it cannot be read. */
async function keptOutput(run: OwnerRun, job: string, isHeld: boolean): Promise<JobOutput | Failure> {
  try {
    const reading = readKept(run, job, isHeld, AbortSignal.timeout(BOUNDARY_LIMITS.keptOutputTimeoutMs));
    return await within(reading, BOUNDARY_LIMITS.keptOutputTimeoutMs);
  } catch (thrown) {
    // Whatever kept us from reading it: the end of the job is recorded without it.
    return run.readFailure(thrown, apiFailure("internal", "Cannot read what the job wrote"));
  }
}

/** Of output that is held, both streams as far as a rule can see them, however much of the other lies before. */
async function readKept(
  run: OwnerRun,
  job: string,
  isHeld: boolean,
  signal: AbortSignal,
): Promise<JobOutput> {
  const { result, stream } = await run.open("job.read", { job, offset: 0, follow: false }, { signal });
  const stdout = new OutputCollector(BOUNDARY_LIMITS.contentBytesMax);
  const stderr = new OutputCollector(BOUNDARY_LIMITS.contentBytesMax);
  let readBytes = 0;
  const isEnough = () =>
    isHeld
      ? Math.min(stdout.seenBytes, stderr.seenBytes) >= BOUNDARY_LIMITS.contentBytesMax
      : readBytes >= BOUNDARY_LIMITS.keptOutputBytesMax;
  try {
    for await (const { kind, bytes } of readJobChunks(stream, ["stdout", "stderr"])) {
      (kind === "stdout" ? stdout : stderr).add(bytes);
      readBytes += bytes.length;
      if (isEnough()) break;
    }
  } finally {
    stream.reset("cancelled");
  }
  const first = (each: OutputCollector) => each.first(BOUNDARY_LIMITS.contentBytesMax);
  return { stdout: first(stdout), stderr: first(stderr), isCut: result.offset > 0 || isEnough() };
}
