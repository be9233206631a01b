import { mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { parseCount } from "./helper-protocol.ts";
import type { Log } from "./log.ts";
import { isSystemError } from "./plain-file.ts";

/** A directory of the cgroup2 file system. Its files answer at once: everything here is synchronous. */
export class Cgroup {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /** Makes it where it is absent. */
  create(): void {
    try {
      mkdirSync(this.path);
    } catch (error) {
      if (!isSystemError(error) || error.code !== "EEXIST") throw error;
    }
  }

  child(name: string): Cgroup {
    return new Cgroup(`${this.path}/${name}`);
  }

  children(): string[] {
    return readdirSync(this.path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
  }

  /** False where this kernel has no such file (a controller that is not enabled) or refuses the value. */
  set(file: string, value: string): boolean {
    try {
      writeFileSync(`${this.path}/${file}`, value);
      return true;
    } catch (error) {
      if (isSystemError(error)) return false;
      throw error;
    }
  }

  read(file: string): string | undefined {
    try {
      return readFileSync(`${this.path}/${file}`, "utf8").trim();
    } catch (error) {
      if (isSystemError(error)) return undefined;
      throw error;
    }
  }

  count(file: string): number | undefined {
    return parseCount(this.read(file));
  }

  /** A number of a "key value" file, such as memory.events. */
  entry(file: string, key: string): number | undefined {
    for (const line of (this.read(file) ?? "").split("\n")) {
      if (line.startsWith(`${key} `)) return parseCount(line.slice(key.length + 1));
    }
    return undefined;
  }

  /** Ends every process in it and below, atomically: a fork bomb does not outrun it. */
  kill(): boolean {
    return this.set("cgroup.kill", "1");
  }

  isPopulated(): boolean {
    return this.entry("cgroup.events", "populated") === 1;
  }

  /** False while something lives in it. */
  remove(): boolean {
    try {
      rmdirSync(this.path);
      return true;
    } catch (error) {
      if (!isSystemError(error)) throw error;
      return error.code === "ENOENT";
    }
  }
}

export interface WorkloadBounds {
  readonly memoryBytesMax: number;
  readonly pidsMax: number;
}

/** Below `work`: the workload's PID 1, and the tools that serve file operations. No job is named so. */
export const RESERVED_NAMES: readonly string[] = ["init", "files"];

/**
 * Prepares `work`, which the workload and every job live below. A cgroup with controllers for its children
 * must hold no process itself, so the workload's PID 1 goes to `work/init` and each job to one of its own.
 */
export function prepareWork(work: Cgroup, bounds: WorkloadBounds, log: Log): void {
  work.create();
  const refused = ["cpu", "memory", "pids"].filter((name) => !work.set("cgroup.subtree_control", `+${name}`));
  if (!work.set("memory.max", String(bounds.memoryBytesMax))) refused.push("memory.max");
  if (!work.set("pids.max", String(bounds.pidsMax))) refused.push("pids.max");
  if (!work.set("cpu.weight", "1")) refused.push("cpu.weight");
  if (refused.length > 0) log.warn("cgroup settings refused", { settings: refused.join(" ") });
  // An agent that was restarted finds the cgroups of its predecessor's jobs; those died with it.
  for (const name of work.children()) work.child(name).remove();
  for (const name of RESERVED_NAMES) work.child(name).create();
}
