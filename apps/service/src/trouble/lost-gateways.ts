import { join } from "node:path";
import type { Panic } from "@capsem/api";
import type { HomeLayout } from "../home/layout.ts";
import { TROUBLE_LIMITS } from "../limits.ts";
import { ReadBudget, readLogWindow } from "../log/log-window.ts";
import { lastLoggedAt, pidIn, WITHOUT_A_WORD, wordsOf } from "./lost-service.ts";

const LAST_WORDS: ReadonlySet<unknown> = new Set(["stopped", "panic", "not started"]);

/**
 * Gateways whose log goes on with another start, or ends while none runs, without a word of their end. The newest
 * first. Nobody was left to write this down, so it is found anew each time in what the log still has.
 */
export async function findLostGateways(
  { logs, run }: Pick<HomeLayout, "logs" | "run">,
  signal?: AbortSignal,
): Promise<Panic[]> {
  const request = { maxBytes: TROUBLE_LIMITS.gatewayPanicBytesMax };
  const { lines } = await readLogWindow(join(logs, "gateway.jsonl"), request, new ReadBudget(signal));
  const found: Panic[] = [];
  let isUp = false;
  let last: unknown = null;
  for (const line of lines) {
    const words = wordsOf(line);
    if (typeof words?.time !== "string" || !Number.isFinite(Date.parse(words.time))) continue;
    if (words.message === "started") {
      if (isUp) found.push(lost(words.time, last));
      isUp = true;
    } else if (LAST_WORDS.has(words.message)) isUp = false;
    last = words.time;
  }
  if (isUp && typeof last === "string" && !(await isAlive(run))) found.push(lost(last, last));
  return found.slice(-TROUBLE_LIMITS.gatewayPanicsMax).reverse();
}

/** `time` is when it was noticed: the next start, else the last that was heard. */
function lost(time: string, last: unknown): Panic {
  const message = `the gateway ${WITHOUT_A_WORD}`;
  return { process: "gateway", pid: 0, time, message, location: lastLoggedAt(last), frames: [] };
}

/** Its pid file goes with it, unless it was killed. */
async function isAlive(run: string): Promise<boolean> {
  const pid = await pidIn(join(run, "gateway.pid"));
  if (pid === 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (thrown) {
    // Somebody else's process took the number, or it is one that we may not signal: there is one.
    return thrown instanceof Error && "code" in thrown && thrown.code === "EPERM";
  }
}
