import type { spawn } from "node:child_process";
import type { SpawnPlan } from "@capsem/api";
import type { Seal } from "@capsem/jail";
import type { Log } from "@capsem/worker";

/** The ambient authority of an owner, made in powers-node.ts. */
export interface OwnerPowers {
  readonly spawn: typeof spawn;
  readonly log: Log;
  writeLog(line: string): void;
  now(): number;
  random(bytes: number): Uint8Array;
  sendDescriptors(socket: number, payload: Uint8Array, descriptors: number[]): void;
  launcherArguments(plan: SpawnPlan): readonly string[];
  /** Begins to confine this process; closed once the hypervisor runs, before its guest does. */
  prepareSeal(plan: SpawnPlan): Seal;
  onHealth(guest: "ok" | "unresponsive"): void;
  /** The guest opened or closed its end of the traffic lane. */
  onTraffic(isOpen: boolean): void;
}
