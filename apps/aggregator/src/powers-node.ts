import { writeSync } from "node:fs";
import type { WorkerPlan } from "@capsem/api";
import { AGGREGATOR_PROFILE, prepareSeal, type Seal } from "@capsem/jail";
import { native } from "@capsem/native";
import type { GrantSocket } from "@capsem/worker";
import { createLog, type Log } from "@capsem/worker";
import { APP_LIMITS } from "./limits.ts";

/** The ambient authority of the aggregator process. */
export interface AggregatorPowers {
  readonly log: Log;
  /** Milliseconds that only grow. */
  now(): number;
  /** In [0, 1): for waits that are to differ. */
  random(): number;
  readonly native: GrantSocket;
  prepareSeal(plan: WorkerPlan): Seal;
  /** Resolves at the first signal to end. */
  readonly told: Promise<void>;
}

export function nodePowers(): AggregatorPowers {
  const write = (line: string) => {
    try {
      writeSync(2, line);
    } catch {
      // The service reads our log; when it is gone, or slow to take it, a line is lost and the rest goes on.
      return;
    }
  };
  return {
    log: createLog("aggregator", write, () => Date.now()),
    now: () => performance.now(),
    random: () => Math.random(),
    native: native(),
    prepareSeal: (plan) =>
      prepareSeal(AGGREGATOR_PROFILE, {
        native: native(),
        arch: process.arch,
        selfPid: process.pid,
        otherPid: process.ppid,
        fileBytesMax: APP_LIMITS.fileBytesMax,
        allowUnconfined: plan.allow_unconfined,
      }),
    told: new Promise<void>((resolve) => {
      process.once("SIGTERM", () => resolve());
    }),
  };
}
