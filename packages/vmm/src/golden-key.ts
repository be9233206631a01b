import { createHash } from "node:crypto";
import { MACHINE_OPTIONS } from "./device-layout.ts";
import { KERNEL_CMDLINE } from "./image/kernel-cmdline.ts";

/** Everything that must be equal for a golden to be restored, or that is inside its memory. */
export interface GoldenIdentity {
  imageDigest: string;
  agentDigest: string;
  qemuVersion: string;
  machine: string;
  cpuModel: string;
  accelerator: string;
  cpus: number;
  memoryMib: number;
  layoutVersion: number;
}

/** The golden's folder name: 32 hex digits of SHA-256 over the identity and what this build adds to it. */
export function goldenKey(identity: GoldenIdentity): string {
  const parts = [
    identity.imageDigest,
    identity.agentDigest,
    identity.qemuVersion,
    identity.machine,
    identity.cpuModel,
    identity.accelerator,
    identity.cpus,
    identity.memoryMib,
    identity.layoutVersion,
    KERNEL_CMDLINE,
    MACHINE_OPTIONS,
  ];
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 32);
}

export const GOLDEN_KEY_PATTERN: RegExp = /^[0-9a-f]{32}$/;
