import { Failure, sleep } from "@capsem/base";
import { createNodeClient } from "@capsem/sdk/node";
import { ensureService } from "../connect.ts";
import type { Context, Handler } from "../context.ts";
import { endProcess } from "../end-process.ts";
import { chosenPort, rememberPort } from "../gateway-port.ts";
import { rotateToken, startGateway } from "../gateway-start.ts";
import { findGateway, type GatewayState, tokenFileOf } from "../gateway-state.ts";
import { GATEWAY_STOP_MS, SERVICE_KILL_MS, SERVICE_LOSER_GRACE_MS, SERVICE_POLL_MS } from "../limits.ts";
import { renderPairs } from "../render.ts";
import { findRun } from "../run-pid.ts";
import { CLIENT_NAME } from "../version.ts";

/** One command for both: a gateway without its service answers nothing but that. */
export const start: Handler = async (context, args) => {
  const { powers, output } = context;
  const port = args.number("port", 0, 65_535, 1);
  await ensureService(createNodeClient({ home: powers.home, clientName: CLIENT_NAME }), powers, output);
  const running = await findGateway(powers);
  if (running !== null) {
    checkRunning(running, port);
    if (port !== undefined && port !== 0) rememberPort(powers, port);
    await tell(context, running, false);
    return 0;
  }
  const allowUnconfined = args.flag("allow-unconfined");
  const begun = await startGateway(powers, { port: port ?? chosenPort(powers), allowUnconfined });
  // The other of two starts at once may have won.
  const started = await untilThere(context);
  if (begun === null) checkRunning(started, port);
  // A free one that was taken for once is not chosen: the next start may not get it.
  if (port !== undefined && port !== 0) rememberPort(powers, port);
  await tell(context, started, begun !== null);
  return 0;
};

async function untilThere({ powers }: Context): Promise<GatewayState> {
  const deadline = powers.now() + SERVICE_LOSER_GRACE_MS;
  for (;;) {
    const found = await findGateway(powers);
    if (found?.answers === true) return found;
    if (powers.now() > deadline)
      throw new Failure("unavailable", "Cannot start the gateway: it ended at once");
    await sleep(SERVICE_POLL_MS);
  }
}

export const status: Handler = async (context) => {
  const { powers, output, json } = context;
  const found = await findGateway(powers);
  if (found === null) {
    await (json ? output.json({ running: false }) : output.line("not running"));
    return 1;
  }
  if (json) await output.json({ running: true, ...shown(context, found) });
  else await output.print(renderGateway(context, found));
  return found.answers ? 0 : 1;
};

export const stop: Handler = async (context, args) => {
  const { powers, output, json } = context;
  const force = args.flag("force");
  const found = findRun(powers, "gateway");
  if (found === null) {
    await (json ? output.json({ running: false, stopped: false }) : output.line("not running"));
    return 0;
  }
  const { pid } = found;
  await endProcess(context, {
    what: "gateway",
    pid,
    force,
    limitMs: force ? SERVICE_KILL_MS : GATEWAY_STOP_MS,
  });
  await (json ? output.json({ running: false, stopped: true, pid }) : output.line(`stopped, pid ${pid}`));
  return 0;
};

export const rotate: Handler = async ({ powers, output, json }) => {
  await rotateToken(powers);
  const found = findRun(powers, "gateway");
  // A gateway that sees its file replaced refuses the old token by itself; the signal makes it at once.
  if (found !== null) process.kill(found.pid, "SIGHUP");
  const tokenFile = tokenFileOf(powers.home);
  await (json
    ? output.json({ rotated: true, token_file: tokenFile })
    : output.line(`new token in ${tokenFile}`));
  return 0;
};

function checkRunning({ pid, port, answers }: GatewayState, asked: number | undefined): void {
  if (!answers) {
    throw new Failure(
      "unresponsive",
      `Cannot use the gateway (pid ${pid}): it does not answer; capsem gateway stop --force ends it`,
    );
  }
  if (asked === undefined || asked === 0 || asked === port) return;
  throw new Failure(
    "wrong_state",
    `Cannot start the gateway on port ${asked}: one runs on port ${port}; capsem gateway stop ends it`,
  );
}

async function tell(context: Context, found: GatewayState, started: boolean): Promise<void> {
  const { output, json } = context;
  if (json) return await output.json({ running: true, started, ...shown(context, found) });
  await output.line(started ? `started, pid ${found.pid}` : `already running, pid ${found.pid}`);
  await output.print(renderGateway(context, found));
}

function shown({ powers }: Context, found: GatewayState) {
  const { pid, port, url, answers, hasService, isConfined } = found;
  const tokenFile = tokenFileOf(powers.home);
  return { pid, port, url, answers, service: hasService, confined: isConfined, token_file: tokenFile };
}

export function renderGateway({ powers }: Pick<Context, "powers">, found: GatewayState): string {
  return renderPairs([
    ["url", found.answers ? (found.url ?? "-") : `${found.url ?? "-"} (does not answer)`],
    ["token", tokenFileOf(powers.home)],
    ["confined", found.isConfined ? "yes" : "no"],
    ...(found.hasService || !found.answers
      ? []
      : [["service", "away; capsem service start starts it"] as const]),
  ]);
}
