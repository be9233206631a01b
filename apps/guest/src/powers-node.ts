import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { writeFileSync, writeSync } from "node:fs";
import { cpus, setPriority, totalmem, uptime } from "node:os";
import { Cgroup } from "./cgroup.ts";
import { isSystemError } from "./plain-file.ts";
import type { GuestPlaces, Powers } from "./powers.ts";
import { Zygote } from "./zygote.ts";

/** The helper gets nothing of our environment: all it needs is in its arguments. */
const EMPTY_ENV = {};

export function nodePowers(places: GuestPlaces): Powers {
  const start = (args: string[], stdio: ("pipe" | "ignore" | "inherit" | number)[]): ChildProcess =>
    started(spawn(places.helper, args, { stdio, env: EMPTY_ENV, cwd: "/" }));
  // Counting the processors reads and parses several files: not while a host waits for `ready`.
  const fixed = { memoryTotalBytes: totalmem(), cpus: Math.max(1, cpus().length) };
  return {
    nowMs: () => Date.now(),
    monotonicUs: () => Number(process.hrtime.bigint() / 1000n),
    random: (bytes) => randomBytes(bytes),
    machine: () => ({ ...fixed, uptimeMs: uptime() * 1000, clocksource: clocksource() }),
    writeLog: (line) => {
      try {
        writeSync(2, line);
      } catch (error) {
        // A console that takes no more must not end the agent: the line is lost.
        if (!isSystemError(error)) throw error;
      }
    },
    startZygote: () => new Zygote(start(["job"], ["pipe", "pipe", "pipe", "pipe"])),
    isAtRest: (pid) => isAsleep(new Cgroup(`/proc/${pid}`).read("stat")),
    startRepair: () => start(["repair", places.machineId], ["pipe", "pipe", "inherit"]),
    startRelay: (port) => start(["relay", port], ["ignore", "pipe", "inherit", "pipe"]),
    startTraffic: () => start(["traffic", places.traffic], ["pipe", "pipe", "inherit"]),
    startInit: (root, cgroup) => start(["workload-init", root, cgroup], ["pipe", "pipe", "inherit"]),
    powerOff: () => writeFileSync(places.sysrq, "o"),
  };
}

/** Throws the system's error where there are no descriptors for a child: Node tells of it later, and gives a child of none. */
function started(child: ChildProcess): ChildProcess {
  // Whoever has the child listens too; without a listener an error that comes later would end the agent.
  child.on("error", () => undefined);
  if ((child.stdio as unknown) !== undefined) return child;
  throw Object.assign(new Error("Cannot start helper: no descriptor is free"), { code: "EMFILE" });
}

/** The agent goes on when the workload does its worst: out of its cgroup, first at the CPU, last to be killed. */
export function protectSelf(cgroups: string): string[] {
  const agent = new Cgroup(`${cgroups}/agent`);
  agent.create();
  const self = new Cgroup("/proc/self");
  const refused: string[] = [];
  if (!agent.set("cgroup.procs", String(process.pid))) refused.push("cgroup.procs");
  if (!agent.set("cpu.weight", "10000")) refused.push("cpu.weight");
  if (!agent.set("memory.min", "104857600")) refused.push("memory.min");
  if (!self.set("oom_score_adj", "-1000")) refused.push("oom_score_adj");
  try {
    setPriority(-20);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    refused.push("nice");
  }
  return refused;
}

/** Before it is executed it has our name, and while it starts it runs, or waits for the disk. */
function isAsleep(stat: string | undefined): boolean {
  return stat === undefined || stat.includes("(capsem-helper) S ");
}

function clocksource(): string {
  const path = "/sys/devices/system/clocksource/clocksource0";
  return new Cgroup(path).read("current_clocksource")?.slice(0, 64) ?? "unknown";
}
