import { Failure } from "@capsem/base";
import { TIMES } from "../limits.ts";
import type { OwnerRun } from "./owner-run.ts";

/**
 * Pings one owner each second until it is lost. Three misses make it unresponsive, one answer makes it ok
 * again: at most one interval and three time limits pass until a frozen owner is told of. An answer that is
 * an error is an answer: the guest's health is the owner's to report.
 */
export function watchHealth(run: OwnerRun, onChange: () => void): void {
  run.onHealth = onChange;
  let missed = 0;
  let timer: NodeJS.Timeout | null = null;
  const beat = async () => {
    const started = performance.now();
    const isAnswered = await ping(run);
    if (run.isLost) return;
    missed = isAnswered ? 0 : missed + 1;
    const health = missed >= TIMES.pingsMissedMax ? "unresponsive" : "ok";
    if (health !== run.health.owner) {
      run.health.owner = health;
      onChange();
    }
    // From one beginning to the next: a missed ping has used its second.
    schedule(Math.max(0, TIMES.pingIntervalMs - (performance.now() - started)));
  };
  const schedule = (delayMs: number) => {
    timer = setTimeout(() => void beat(), delayMs);
    timer.unref();
  };
  void run.lost.then(() => {
    if (timer !== null) clearTimeout(timer);
  });
  schedule(TIMES.pingIntervalMs);
}

async function ping(run: OwnerRun): Promise<boolean> {
  try {
    await run.call("ping", {}, { timeoutMs: TIMES.pingTimeoutMs });
    return true;
  } catch (thrown) {
    const cause = thrown instanceof Failure ? thrown.cause : null;
    return !(cause instanceof Failure && cause.kind === "timeout");
  }
}
