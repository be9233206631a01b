import { writeSync } from "node:fs";
import { join } from "node:path";
import type { LedgerPlan } from "@capsem/api";
import { LEDGER_PROFILE, prepareSeal, type Seal } from "@capsem/jail";
import { native } from "@capsem/native";
import { createLog, type Log } from "@capsem/worker";
import { APP_LIMITS } from "./limits.ts";

/** The ambient authority of the ledger process. */
export interface LedgerPowers {
  readonly log: Log;
  now(): number;
  /** The file that runs this program, and its threads. */
  readonly program: string;
  prepareSeal(plan: LedgerPlan): Seal;
  /** Resolves at the first signal to end. */
  readonly told: Promise<void>;
}

export function nodePowers(): LedgerPowers {
  const now = () => Date.now();
  const write = (line: string) => {
    try {
      writeSync(2, line);
    } catch {
      // The service reads our log; when it is gone, or slow to take it, a line is lost and the rest goes on.
      return;
    }
  };
  return {
    now,
    log: createLog("ledger", write, now),
    program: join(__dirname, "ledger.cjs"),
    prepareSeal: (plan) =>
      prepareSeal(LEDGER_PROFILE, {
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
