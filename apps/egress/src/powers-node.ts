import { readFileSync, statSync, writeSync } from "node:fs";
import type { WorkerPlan } from "@capsem/api";
import { EGRESS_PROFILE, prepareSeal, type Seal } from "@capsem/jail";
import { type Native, native } from "@capsem/native";
import { createLog, type Log } from "@capsem/worker";
import { CERTIFICATE_FILES } from "./certificates.ts";
import { EGRESS_LIMITS } from "./limits.ts";

/** The ambient authority of egress. */
export interface EgressPowers {
  readonly log: Log;
  readonly native: Native;
  monotonicMs(): number;
  /** The machine's list of certificates; null where it has none that may be read. */
  certificates(): string | null;
  prepareSeal(plan: WorkerPlan): Seal;
  /** Resolves at the first signal to end. */
  readonly told: Promise<void>;
}

export function nodePowers(): EgressPowers {
  const write = (line: string) => {
    try {
      writeSync(2, line);
    } catch {
      // The service reads our log; when it is gone, or slow to take it, a line is lost and the rest goes on.
      return;
    }
  };
  return {
    log: createLog("egress", write, () => Date.now()),
    native: native(),
    monotonicMs: () => performance.now(),
    certificates: readCertificates,
    prepareSeal: (plan) =>
      prepareSeal(EGRESS_PROFILE, {
        native: native(),
        arch: process.arch,
        selfPid: process.pid,
        otherPid: process.ppid,
        fileBytesMax: EGRESS_LIMITS.fileBytesMax,
        allowUnconfined: plan.allow_unconfined,
      }),
    told: new Promise<void>((resolve) => {
      process.once("SIGTERM", () => resolve());
    }),
  };
}

function readCertificates(): string | null {
  for (const path of CERTIFICATE_FILES) {
    const text = readOrNull(path);
    if (text !== null) return text;
  }
  return null;
}

/** Another distribution has it elsewhere, or it was not granted. */
function readOrNull(path: string): string | null {
  try {
    return statSync(path).size <= EGRESS_LIMITS.certificateBytesMax ? readFileSync(path, "utf8") : null;
  } catch {
    return null;
  }
}
