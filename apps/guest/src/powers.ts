import type { ChildProcess } from "node:child_process";
import type { Zygote } from "./zygote.ts";

/** Where things are in the guest. Tests have other places. */
export interface GuestPlaces {
  readonly control: string;
  readonly bulk: string;
  readonly traffic: string;
  readonly helper: string;
  readonly workloadRoot: string;
  readonly disk: string;
  readonly cgroups: string;
  readonly machineId: string;
  readonly sysrq: string;
}

export interface MachineFacts {
  readonly uptimeMs: number;
  readonly memoryTotalBytes: number;
  readonly cpus: number;
  readonly clocksource: string;
}

/** The ambient authority of the guest agent. */
export interface Powers {
  nowMs(): number;
  monotonicUs(): number;
  /** Unpredictable only in a process that started after the kernel's entropy was repaired. */
  random(bytes: number): Uint8Array;
  machine(): MachineFacts;
  writeLog(line: string): void;
  startZygote(): Zygote;
  /** Whether a helper has got to where it waits; true as well for one that is gone. */
  isAtRest(pid: number): boolean;
  startRepair(): ChildProcess;
  /** It opens the port; descriptor 3 is its control. */
  startRelay(port: string): ChildProcess;
  /** It waits to be told of a workload; then it enters that one's network. */
  startTraffic(): ChildProcess;
  startInit(root: string, cgroup: string): ChildProcess;
  powerOff(): void;
}
