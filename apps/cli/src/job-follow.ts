import { within } from "@capsem/base";
import { CapsemError, type Job, type JobExit } from "@capsem/sdk";
import type { CommandInput } from "./command-input.ts";
import type { Context } from "./context.ts";
import { EXIT, exitOfJob } from "./exit-code.ts";
import { JOB_LIMIT_MARGIN_MS, KILL_GRACE_MS } from "./limits.ts";
import { OutputCollector } from "./output-collector.ts";
import { renderBytes } from "./render.ts";

const SIGKILL = 9;

export interface FollowedJob {
  readonly exitCode: number;
  /** Null: it was killed and its end not seen in time. */
  readonly exit: JobExit | null;
}

export interface FollowOptions {
  /** What the job is given to read; null: it was started without an input. */
  readonly input: CommandInput | null;
  readonly timeoutSecs: number | undefined;
  /** Aborts when the user wants everything to end now; its reason is the exit code. */
  readonly killed: AbortSignal;
}

/** Live output, stdin and the end of a job; with `--json` one object at its end. */
export async function followJob(context: Context, job: Job, options: FollowOptions): Promise<FollowedJob> {
  const { output, json } = context;
  const started = context.powers.now();
  const streams = { stdout: new OutputCollector(), stderr: new OutputCollector() };
  output.onBroken = () => killJob(job).then(() => undefined);
  const feeding = options.input === null ? null : feed(options.input, job);
  const show = async () => {
    for await (const { stream, data } of job) {
      if (json) streams[stream].add(data);
      else if (stream === "stdout") await output.print(data);
      else await output.error(data);
    }
    return await job;
  };
  const exit = await settle(context, job, show(), options);
  feeding?.stop();
  output.onBroken = null;
  if (exit === null || typeof exit === "number") return { exit: null, exitCode: exit ?? EXIT.timeLimit };
  await explain(context, exit, options.timeoutSecs);
  if (json) {
    const { agent_us: agentUs, truncated: _, ...end } = exit;
    const times = { duration_ms: context.powers.now() - started, agent_ms: agentUs / 1000 };
    await output.json({
      job_id: await job.id,
      ...end,
      stdout: streams.stdout.data,
      stderr: streams.stderr.data,
      ...times,
    });
  }
  return { exit, exitCode: exitOfJob(exit) };
}

/** The job's end; the exit code of whoever killed it; null when its time limit passed without an end. */
async function settle(
  { isHeld }: Pick<Context, "isHeld">,
  job: Job,
  shown: Promise<JobExit>,
  options: FollowOptions,
): Promise<JobExit | number | null> {
  const { killed, timeoutSecs } = options;
  const kill = new Promise<number>((resolve) => {
    const onKill = () => resolve(Number(killed.reason));
    if (killed.aborted) onKill();
    else killed.addEventListener("abort", onKill, { once: true });
  });
  const first = Promise.race([shown, kill]);
  shown.then(undefined, () => undefined);
  const limitMs = timeoutSecs === undefined ? null : timeoutSecs * 1000 + JOB_LIMIT_MARGIN_MS;
  for (;;) {
    try {
      const result = await (limitMs === null
        ? first
        : within(first, limitMs, () => new CapsemError("timeout", "late")));
      if (typeof result === "number") await endJob(job, isHeld());
      return result;
    } catch (thrown) {
      if (!(thrown instanceof CapsemError && thrown.message === "late")) throw thrown;
      // A job that waits for a person has not begun: its time has not either.
      if (isHeld()) continue;
      await killJob(job);
      return null;
    }
  }
}

/** One that waits for a person has not begun: our leaving ends it, and its ask. */
async function endJob(job: Job, isHeld: boolean): Promise<void> {
  if (isHeld) job.detach();
  else await killJob(job);
}

async function killJob(job: Job): Promise<void> {
  // Nobody reads it any more, and the end is behind it.
  job.discard();
  const end = async () => {
    await job.signal(SIGKILL);
    await job;
  };
  // Whoever asked is gone, and the service ends what is left: a late or failed end changes nothing.
  await within(end(), KILL_GRACE_MS).then(undefined, () => undefined);
}

function feed(given: CommandInput, job: Job): { stop(): void } {
  const input = given[Symbol.asyncIterator]();
  let stopped = false;
  const pump = async () => {
    for (;;) {
      const next = await input.next();
      if (stopped) return;
      if (next.done === true) break;
      await job.write(next.value);
    }
    await job.closeStdin();
  };
  // A job that ended or reads no more makes writing fail: its own end is what the user sees.
  pump().then(undefined, () => undefined);
  return {
    stop: () => {
      stopped = true;
    },
  };
}

async function explain({ output }: Context, exit: JobExit, timeoutSecs: number | undefined): Promise<void> {
  if (exit.timed_out) await output.say(`the command was killed at its time limit of ${timeoutSecs} s`);
  const memory = exit.out_of_memory;
  if (memory !== null) {
    const numbers = `limit ${renderBytes(memory.limit_bytes)}, peak ${renderBytes(memory.peak_bytes)}`;
    await output.say(`the command ran out of memory: ${numbers}`);
  }
  if (exit.truncated) await output.say("the output is not complete: it came faster than it was read");
}
