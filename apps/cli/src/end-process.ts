import { Failure, sleep } from "@capsem/base";
import type { Context } from "./context.ts";
import { SERVICE_POLL_MS } from "./limits.ts";
import { processFacts } from "./process-table.ts";
import { startProgress } from "./progress.ts";

export interface Ending {
  /** "service" or "gateway". */
  readonly what: string;
  readonly pid: number;
  readonly force: boolean;
  readonly limitMs: number;
}

/** Asks a process to end, or kills it, and waits until it has; a process that took over its number is not waited for. */
export async function endProcess(context: Context, ending: Ending): Promise<void> {
  send(ending);
  await untilGone(context, ending);
}

function send({ what, pid, force }: Ending): void {
  try {
    process.kill(pid, force ? "SIGKILL" : "SIGTERM");
  } catch (thrown) {
    const code = thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
    if (code === "ESRCH") return;
    throw new Failure("not_permitted", `Cannot stop the ${what} (pid ${pid}): ${String(code)}`, {
      cause: thrown,
    });
  }
}

async function untilGone({ powers, output }: Context, { what, pid, force, limitMs }: Ending): Promise<void> {
  const progress = startProgress(powers, output);
  const begun = powers.now();
  const born = processFacts(pid, begun)?.startedAtMs ?? null;
  try {
    while (powers.now() - begun < limitMs) {
      const facts = processFacts(pid, powers.now());
      const other = facts !== null && born !== null && Math.abs(facts.startedAtMs - born) > 1_000;
      if (facts === null || other) return;
      progress.update(`stopping the ${what} (${Math.round((powers.now() - begun) / 1000)} s)`);
      await sleep(SERVICE_POLL_MS);
    }
  } finally {
    progress.end();
  }
  const hint = force ? "" : "; --force ends it";
  throw new Failure(
    "unresponsive",
    `Cannot stop the ${what} (pid ${pid}): it is there after ${limitMs / 1000} s${hint}`,
  );
}
