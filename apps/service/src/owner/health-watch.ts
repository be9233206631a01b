import { Failure } from "@capsem/base";
import { TIMES } from "../limits.ts";
import type { OwnerRun } from "./owner-run.ts";

/**
 * Pings one owner each second until it is lost. Three misses make it unresponsive, one answer makes it ok
 * again. An answer that is an error is an answer: the guest's health is the owner's to report.
 */
export function watchHealth(run: OwnerRun, onChange: () => void): void {
  run.onHealth = onChange;
  let missed = 0;
  let timer: NodeJS.Timeout | null = null;
  const beat = async () => {
    const isAnswered = await ping(run);
    if (run.isLost) return;
    missed = isAnswered ? 0 : missed + 1;
    const health = missed >= TIMES.pingsMissedMax ? "unresponsive" : "ok";
    if (health !== run.health.owner) {
      run.health.owner = health;
      onChange();
    }
    schedule();
  };
  const schedule = () => {
    timer = setTimeout(() => void beat(), TIMES.pingIntervalMs);
    timer.unref();
  };
  void run.lost.then(() => {
    if (timer !== null) clearTimeout(timer);
  });
  schedule();
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
