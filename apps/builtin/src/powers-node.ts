import { readFileSync, writeSync } from "node:fs";
import type { WorkerPlan } from "@capsem/api";
import { BUILTIN_PROFILE, prepareSeal, type Seal } from "@capsem/jail";
import { type Native, native } from "@capsem/native";
import { createLog, type Log } from "@capsem/worker";
import { warmCharsets } from "./charset.ts";
import { BUILTIN_LIMITS } from "./limits.ts";

/** The ambient authority of the process of builtin tools. */
export interface BuiltinPowers {
  readonly log: Log;
  now(): number;
  readonly version: string;
  /** The text of this program. */
  readonly program: string;
  readonly native: Native;
  prepareSeal(plan: WorkerPlan): Seal;
  /** Resolves at the first signal to end. */
  readonly told: Promise<void>;
}

export function nodePowers(): BuiltinPowers {
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
    log: createLog("builtin", write, now),
    version: process.env.CAPSEM_VERSION ?? "0",
    // As the launcher reads it.
    program: readFileSync(__filename, "latin1"),
    native: native(),
    prepareSeal: (plan) => {
      warmCharsets();
      return prepareSeal(BUILTIN_PROFILE, {
        native: native(),
        arch: process.arch,
        selfPid: process.pid,
        otherPid: process.ppid,
        fileBytesMax: BUILTIN_LIMITS.fileBytesMax,
        allowUnconfined: plan.allow_unconfined,
      });
    },
    told: new Promise<void>((resolve) => {
      process.once("SIGTERM", () => resolve());
    }),
  };
}
