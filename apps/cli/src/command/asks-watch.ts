import type { AskInfo } from "@capsem/api";
import { sleep } from "@capsem/base";
import { CapsemError, type Client } from "@capsem/sdk";
import { AskDesk } from "../ask-desk.ts";
import { placeOf, shortId } from "../ask-text.ts";
import type { Context, Handler } from "../context.ts";
import { ASKS_TOLD_MAX, EVENTS_AGAIN_MS } from "../limits.ts";
import { renderLocal } from "../render.ts";
import { resolvedText } from "./asks.ts";

interface Listener {
  /** One that waits, or that was answered just now. */
  ask(ask: AskInfo): Promise<void>;
}

/** Until the user ends it; a service that goes away is waited for. */
export const watch: Handler = async (context) => {
  const { powers, json } = context;
  const client = await context.client();
  const isTerminal = powers.stdin.isTerminal && powers.stdout.isTerminal && !json;
  if (!isTerminal) {
    await follow(context, client, printer(context), new AbortController().signal);
    return 0;
  }
  const ended = new AbortController();
  const desk = new AskDesk(context, client.asks, () => ended.abort());
  const restore = powers.onSignals(["SIGTERM", "SIGHUP"], () => ended.abort());
  try {
    await desk.open();
    await follow(context, client, desk, ended.signal);
    return 0;
  } finally {
    desk.close();
    restore();
  }
};

/** Asks that waited already come first. Ends with the signal alone. */
async function follow(
  { output }: Context,
  client: Client,
  listener: Listener,
  signal: AbortSignal,
): Promise<void> {
  let isAway = false;
  const states = new Map<string, AskInfo["state"]>();
  const tell = async (ask: AskInfo) => {
    // One that is over is told of again when a retry uses its approval.
    if (states.get(ask.id) === ask.state) return;
    states.set(ask.id, ask.state);
    const [oldest] = states.keys();
    if (states.size > ASKS_TOLD_MAX && oldest !== undefined) states.delete(oldest);
    await listener.ask(ask);
  };
  while (!signal.aborted) {
    try {
      for await (const event of client.events({ signal })) {
        if (isAway) await output.say("the service is back");
        isAway = false;
        if (event.type === "ask") await tell(event.ask);
        if (event.type === "hello" || event.type === "lagged") {
          for (const ask of event.asks) await tell(ask);
          await tellMissed(client, states, new Set(event.asks.map(({ id }) => id)), tell);
        }
      }
    } catch (thrown) {
      if (signal.aborted) return;
      if (!(thrown instanceof CapsemError) || thrown.kind !== "unavailable") throw thrown;
      if (!isAway) await output.say("the service is away; this goes on when it is back");
      isAway = true;
      await sleep(EVENTS_AGAIN_MS);
    }
  }
}

/** What was answered while nobody listened here is found by its absence. */
async function tellMissed(
  client: Client,
  states: ReadonlyMap<string, AskInfo["state"]>,
  waiting: ReadonlySet<string>,
  tell: (ask: AskInfo) => Promise<void>,
): Promise<void> {
  const missed = [...states].flatMap(([id, state]) => (state === "pending" && !waiting.has(id) ? [id] : []));
  if (missed.length === 0) return;
  for (const ask of await client.asks.list()) if (missed.includes(ask.id)) await tell(ask);
}

function printer({ output, json }: Context): Listener {
  return {
    ask: async (ask) => {
      if (json) await output.json(ask);
      else if (ask.state !== "pending")
        await output.line(`${renderLocal(ask.resolved_at)}  ${resolvedText(ask)}`);
      else
        await output.line(
          `${renderLocal(ask.created_at)}  pending ${shortId(ask.id)}, ${ask.title} in ${placeOf(ask)} (rule ${ask.rule_id})`,
        );
    },
  };
}
