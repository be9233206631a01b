import { apiFailure, type ExecRequest, type ExecResult, type OwnerJobEnd } from "@capsem/api";
import { Failure, ignore } from "@capsem/base";
import { type MuxStream, readJobChunks } from "@capsem/wire";
import type { ActContext } from "../act.ts";
import type { JobOutput } from "../boundary/command-draft.ts";
import { BOUNDARY_LIMITS } from "../boundary/limits.ts";
import { EXEC_LIMITS } from "../limits.ts";
import type { OwnerRun } from "../owner/owner-run.ts";
import { settledWithin } from "../owner/settled.ts";
import { jobStartParams } from "./job-request.ts";
import { OutputCollector } from "./output-collector.ts";

export interface ExecParts {
  readonly run: OwnerRun;
  readonly job: string;
  readonly monotonicMs: () => number;
}

/** What came of a command: its answer, and the first bytes that it wrote as they were. */
export interface Executed {
  readonly result: ExecResult;
  readonly end: OwnerJobEnd;
  readonly output: JobOutput;
}

/**
 * Runs a command to its end and collects what it says. When the requester goes away, the end does not come in time, or
 * nobody can learn of it, the whole process tree is killed.
 */
export async function execute(
  parts: ExecParts,
  request: Omit<ExecRequest, "stdin"> & Pick<Partial<ExecRequest>, "stdin">,
  context: ActContext,
): Promise<Executed> {
  const { run, job, monotonicMs } = parts;
  const startedMs = monotonicMs();
  const stdin = request.stdin === undefined ? null : decodeStdin(request.stdin);
  const params = jobStartParams(job, request, { stdin: stdin !== null, timeLeftMs: context.timeLeftMs });
  const limits = { signal: context.signal, trace: context.trace };
  let isStarted = false;
  try {
    await run.call("job.start", params, limits);
    isStarted = true;
    // Asked together, so that the owner is woken once.
    const opened = run.open("job.read", { job, offset: 0, follow: "output" }, limits);
    const ended = run.call("job.wait", { job }, { ...limits, timeoutMs: waitTimeoutMs(params.time_left_ms) });
    ignore(ended);
    const { stream } = await opened;
    // Nothing is said on it: at the job's end there is one frame less to send while the answer waits.
    stream.end();
    const output = { stdout: collector(), stderr: collector() };
    const collected = collect(stream, output);
    try {
      if (stdin !== null) ignore(feed(run, job, stdin, context.signal));
      const end = await ended;
      await settledWithin(collected, EXEC_LIMITS.outputGraceMs);
      const result = resultOf(job, end, output, monotonicMs() - startedMs);
      const first = (each: OutputCollector) => each.first(BOUNDARY_LIMITS.contentBytesMax);
      return { result, end, output: { stdout: first(output.stdout), stderr: first(output.stderr) } };
    } finally {
      stream.reset("cancelled");
    }
  } catch (thrown) {
    const isLate = thrown instanceof Failure && thrown.kind === "unresponsive";
    if (isStarted || context.signal.aborted || isLate)
      ignore(run.call("job.signal", { job, signal: 9, tree: true }));
    throw thrown;
  }
}

type Output = Readonly<Record<"stdout" | "stderr", OutputCollector>>;

function collector(): OutputCollector {
  return new OutputCollector(EXEC_LIMITS.outputBytesMax);
}

/** Drains all of the output, keeps its beginning. Never rejects: a lost owner ends the wait for the job too. */
async function collect(stream: MuxStream, output: Output): Promise<void> {
  try {
    for await (const { kind, bytes } of readJobChunks(stream, ["stdout", "stderr"])) {
      (kind === "stdout" ? output.stdout : output.stderr).add(bytes);
    }
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    stream.reset("protocol_error");
  }
}

/** A job may end without reading its input: what this cannot write is nobody's loss. */
async function feed(run: OwnerRun, job: string, bytes: Uint8Array, signal: AbortSignal): Promise<void> {
  const { stream } = await run.open("job.write", { job }, { signal });
  try {
    if (bytes.length > 0) await stream.write(bytes);
    stream.end();
    while ((await stream.read()) !== null);
  } catch (thrown) {
    stream.reset("cancelled");
    throw thrown;
  }
}

function decodeStdin(stdin: NonNullable<ExecRequest["stdin"]>): Uint8Array {
  if (stdin.encoding === "utf8") return Buffer.from(stdin.data, "utf8");
  const bytes = Buffer.from(stdin.data, "base64");
  if (bytes.toString("base64").replace(/=+$/, "") !== stdin.data.replace(/=+$/, "")) {
    throw apiFailure("invalid_input", "Cannot read stdin: it is not base64");
  }
  return bytes;
}

function waitTimeoutMs(timeLeftMs: number | undefined): number | null {
  return timeLeftMs === undefined ? null : timeLeftMs + EXEC_LIMITS.timeoutGraceMs;
}

function resultOf(job: string, end: OwnerJobEnd, output: Output, durationMs: number): ExecResult {
  return {
    job_id: job,
    exit_code: end.exit_code,
    signal: end.signal,
    timed_out: end.timed_out,
    out_of_memory: end.out_of_memory,
    stdout: output.stdout.data(end.stdout_bytes),
    stderr: output.stderr.data(end.stderr_bytes),
    duration_ms: tenths(durationMs),
    agent_ms: tenths(end.agent_us / 1000),
  };
}

/** No caller acts on less, and each digit costs a model that reads it. */
function tenths(ms: number): number {
  return Math.round(ms * 10) / 10;
}
