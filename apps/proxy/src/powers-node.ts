import { createHash, randomBytes } from "node:crypto";
import { writeSync } from "node:fs";
import { availableParallelism } from "node:os";
import type { WorkerPlan } from "@capsem/api";
import { PROXY_PROFILE, prepareSeal, type Seal } from "@capsem/jail";
import { type Native, native } from "@capsem/native";
import { createLog, type Log } from "@capsem/worker";
import { PROXY_LIMITS } from "./limits.ts";
import type { Clock } from "./parts.ts";

/** The ambient authority of the proxy. */
export interface ProxyPowers {
  readonly log: Log;
  readonly clock: Clock;
  readonly version: string;
  readonly cores: number;
  readonly native: Native;
  random(bytes: number): Uint8Array;
  digest(text: string): string;
  prepareSeal(plan: WorkerPlan): Seal;
  /** Resolves at the first signal to end. */
  readonly told: Promise<void>;
}

export function nodePowers(): ProxyPowers {
  const nowMs = () => Date.now();
  const write = (line: string) => {
    try {
      writeSync(2, line);
    } catch {
      // The service reads our log; when it is gone, or slow to take it, a line is lost and the rest goes on.
      return;
    }
  };
  return {
    log: createLog("proxy", write, nowMs),
    clock: { nowMs, monotonicMs: () => performance.now() },
    version: process.env.CAPSEM_VERSION ?? "0",
    // It reads files, which it may no longer do later.
    cores: availableParallelism(),
    native: native(),
    random: (bytes) => randomBytes(bytes),
    digest: (text) => createHash("sha256").update(text).digest("hex"),
    prepareSeal: (plan) =>
      prepareSeal(PROXY_PROFILE, {
        native: native(),
        arch: process.arch,
        selfPid: process.pid,
        otherPid: process.ppid,
        fileBytesMax: PROXY_LIMITS.fileBytesMax,
        allowUnconfined: plan.allow_unconfined,
      }),
    told: new Promise<void>((resolve) => {
      process.once("SIGTERM", () => resolve());
    }),
  };
}
