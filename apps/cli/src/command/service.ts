import { Failure, sleep } from "@capsem/base";
import { CapsemError, type Client } from "@capsem/sdk";
import { createNodeClient } from "@capsem/sdk/node";
import { ensureService } from "../connect.ts";
import type { Context, Handler } from "../context.ts";
import { SERVICE_KILL_MS, SERVICE_POLL_MS, SERVICE_STOP_MS } from "../limits.ts";
import { probe } from "../probe.ts";
import { processFacts } from "../process-table.ts";
import { startProgress } from "../progress.ts";
import { findService } from "../service-pid.ts";
import { renderStatus } from "./status.ts";

export const start: Handler = async ({ powers, output, json }) => {
  const client = createNodeClient({ home: powers.home });
  const started = await ensureService(client, powers, output);
  const { pid } = await client.status();
  if (json) await output.json({ running: true, started, pid });
  else await output.line(started ? `started, pid ${pid}` : `already running, pid ${pid}`);
  return 0;
};

export const status: Handler = async ({ powers, output, json }) => {
  const client = createNodeClient({ home: powers.home });
  const answers = await probe(client, powers);
  if (!answers) {
    await (json ? output.json({ running: false }) : output.line("not running"));
    return 1;
  }
  const found = await client.status();
  await (json ? output.json({ running: true, ...found }) : output.print(renderStatus(found)));
  return 0;
};

/** Its end takes all VMs with it: they die with the service. */
export const stop: Handler = async (context, args) => {
  const { output, json } = context;
  const force = args.flag("force");
  const pid = await pidOf(context, force);
  if (pid === null) {
    await (json ? output.json({ running: false, stopped: false }) : output.line("not running"));
    return 0;
  }
  send(pid, force ? "SIGKILL" : "SIGTERM");
  await untilGone(context, pid, force ? SERVICE_KILL_MS : SERVICE_STOP_MS, force);
  await (json ? output.json({ running: false, stopped: true, pid }) : output.line(`stopped, pid ${pid}`));
  return 0;
};

/** The pid file's, or with a service that answers and has none what it says itself. */
async function pidOf({ powers }: Context, force: boolean): Promise<number | null> {
  const found = findService(powers);
  if (found !== null) {
    if (found.state === "T" && !force) {
      const message = `Cannot stop the service (pid ${found.pid}): its process is stopped; --force ends it`;
      throw new Failure("unresponsive", message, { retryable: false });
    }
    return found.pid;
  }
  const client: Client = createNodeClient({ home: powers.home });
  try {
    return (await probe(client, powers)) ? (await client.status()).pid : null;
  } catch (thrown) {
    if (thrown instanceof CapsemError && thrown.kind === "unavailable") return null;
    throw thrown;
  }
}

function send(pid: number, signal: "SIGTERM" | "SIGKILL"): void {
  try {
    process.kill(pid, signal);
  } catch (thrown) {
    const code = thrown instanceof Error && "code" in thrown ? thrown.code : undefined;
    if (code === "ESRCH") return;
    throw new Failure("not_permitted", `Cannot stop the service (pid ${pid}): ${String(code)}`, {
      cause: thrown,
    });
  }
}

async function untilGone(
  { powers, output }: Context,
  pid: number,
  limitMs: number,
  force: boolean,
): Promise<void> {
  const progress = startProgress(powers, output);
  const begun = powers.now();
  const born = processFacts(pid, begun)?.startedAtMs ?? null;
  try {
    while (powers.now() - begun < limitMs) {
      const facts = processFacts(pid, powers.now());
      const other = facts !== null && born !== null && Math.abs(facts.startedAtMs - born) > 1_000;
      if (facts === null || other) return;
      progress.update(`stopping the service (${Math.round((powers.now() - begun) / 1000)} s)`);
      await sleep(SERVICE_POLL_MS);
    }
  } finally {
    progress.end();
  }
  const hint = force ? "" : "; --force ends it";
  throw new Failure(
    "unresponsive",
    `Cannot stop the service (pid ${pid}): it is there after ${limitMs / 1000} s${hint}`,
  );
}
