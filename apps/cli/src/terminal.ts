import { CapsemError, type Job, type JobExit } from "@capsem/sdk";
import type { Context } from "./context.ts";

/**
 * Joins our terminal to a job's. In raw mode Ctrl-C and the like are bytes for the guest. The terminal is given
 * back on every way out; when we are told to end, the job stays and its id is said.
 */
export async function followTerminal(context: Context, job: Job): Promise<JobExit> {
  const { powers, output } = context;
  const resize = () => {
    const size = powers.stdout.size();
    if (size !== null) job.resize(size.cols, size.rows).then(undefined, () => undefined);
  };
  const restore = () => powers.stdin.setRaw(false);
  const unwatchSize = powers.onSignals(["SIGWINCH", "SIGCONT"], (name) => {
    // After a stop from outside the shell has put the terminal into its own mode.
    if (name === "SIGCONT") powers.stdin.setRaw(true);
    resize();
  });
  let left = false;
  const unwatchEnd = powers.onSignals(["SIGINT", "SIGTERM", "SIGHUP"], () => {
    left = true;
    job.detach();
  });
  output.onBroken = async () => restore();
  try {
    const id = await job.id;
    powers.stdin.setRaw(true);
    resize();
    pump(context, job).then(undefined, () => undefined);
    for await (const { data } of job) await output.print(data);
    if (left)
      throw new CapsemError(
        "cancelled",
        `Cannot go on: told to end; capsem shell --job ${id} comes back to it`,
      );
    return await job;
  } finally {
    output.onBroken = null;
    unwatchSize();
    unwatchEnd();
    restore();
  }
}

async function pump({ powers }: Context, job: Job): Promise<void> {
  for await (const bytes of powers.stdin.bytes()) await job.write(bytes);
}
