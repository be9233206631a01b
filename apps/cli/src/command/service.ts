import { Failure } from "@capsem/base";
import { CapsemError, type Client } from "@capsem/sdk";
import { createNodeClient } from "@capsem/sdk/node";
import { ensureService } from "../connect.ts";
import type { Context, Handler } from "../context.ts";
import { endProcess } from "../end-process.ts";
import { SERVICE_KILL_MS, SERVICE_STOP_MS } from "../limits.ts";
import { probe } from "../probe.ts";
import { findService } from "../service-pid.ts";
import { CLIENT_NAME } from "../version.ts";
import { renderStatus } from "./status.ts";

export const start: Handler = async ({ powers, output, json }) => {
  const client = createNodeClient({ home: powers.home, clientName: CLIENT_NAME });
  const started = await ensureService(client, powers, output);
  const { pid } = await client.status();
  if (json) await output.json({ running: true, started, pid });
  else await output.line(started ? `started, pid ${pid}` : `already running, pid ${pid}`);
  return 0;
};

export const status: Handler = async ({ powers, output, json }) => {
  const client = createNodeClient({ home: powers.home, clientName: CLIENT_NAME });
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
  const limitMs = force ? SERVICE_KILL_MS : SERVICE_STOP_MS;
  await endProcess(context, { what: "service", pid, force, limitMs });
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
  const client: Client = createNodeClient({ home: powers.home, clientName: CLIENT_NAME });
  try {
    return (await probe(client, powers)) ? (await client.status()).pid : null;
  } catch (thrown) {
    if (thrown instanceof CapsemError && thrown.kind === "unavailable") return null;
    throw thrown;
  }
}
