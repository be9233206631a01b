import type { ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { assert, ignore, sleep, within } from "@capsem/base";
import type { HostBody } from "@capsem/wire";
import { type Cgroup, prepareWork } from "./cgroup.ts";
import { type Environment, parseEnvironment } from "./environment.ts";
import { guestFailure } from "./guest-error.ts";
import { parseCount } from "./helper-protocol.ts";
import { GUEST_LIMITS } from "./limits.ts";
import type { Log } from "./log.ts";
import { type Repair, RepairRefusal } from "./repair.ts";
import { ReportReader } from "./report-reader.ts";

export interface WorkloadOptions {
  /** Where the workload root is mounted, and the device that carries it. */
  readonly root: string;
  readonly disk: string;
  readonly work: Cgroup;
  readonly memoryTotalBytes: number;
  readonly repair: Repair;
  readonly log: Log;
  /** Starts `capsem-helper workload-init`. */
  readonly startInit: (root: string, cgroup: string, hostname: string) => ChildProcess;
}

interface Init {
  readonly pid: number;
  readonly ended: Promise<void>;
}

/** The workload: its disk, its root and its namespaces, from the mount to the unmount. */
export class Workload {
  readonly #options: WorkloadOptions;
  readonly work: Cgroup;
  readonly root: string;
  environment: Environment = new Map();
  #hostname = "capsem";
  #init: Init | undefined;
  #isMounted: boolean;
  #isMounting = false;

  constructor(options: WorkloadOptions) {
    this.#options = options;
    this.work = options.work;
    this.root = options.root;
    // An agent that was restarted finds the disk where its predecessor left it.
    this.#isMounted = existsSync(`${options.root}/proc`);
  }

  get isMounted(): boolean {
    return this.#isMounted;
  }

  get memoryBytesMax(): number {
    const { memoryTotalBytes } = this.#options;
    return Math.max(GUEST_LIMITS.workloadMemoryBytesMin, memoryTotalBytes - GUEST_LIMITS.agentMemoryBytes);
  }

  /** The limits, before anything runs below them. */
  prepare(): void {
    prepareWork(
      this.work,
      { memoryBytesMax: this.memoryBytesMax, pidsMax: GUEST_LIMITS.workloadPidsMax },
      this.#options.log,
    );
  }

  /** Process id of the workload's PID 1. Throws Failure("wrong_state") where nothing is mounted. */
  initPid(): number {
    if (this.#init === undefined) {
      throw guestFailure("wrong_state", "Cannot enter the workload: its disk is not mounted");
    }
    return this.#init.pid;
  }

  /** Everything below `work`; undefined where the kernel does not count. */
  processCount(): number | undefined {
    return this.work.count("pids.current");
  }

  setEnvironment(entries: readonly string[]): void {
    this.environment = parseEnvironment(entries);
  }

  /** Clock, entropy and names, in one round trip. */
  async configure(config: HostBody<"boot_config">): Promise<void> {
    const { entropy } = config;
    if (entropy.length < 32 || entropy.length > 512) {
      throw guestFailure("invalid_input", `Cannot repair the guest: ${entropy.length} bytes of entropy`);
    }
    this.#hostname = config.hostname;
    const seed = Buffer.from(entropy.buffer, entropy.byteOffset, entropy.byteLength).toString("hex");
    const words = ["repair", ...clockWords(config.clock_ms), seed, config.hostname, config.machine_id];
    if (this.#init !== undefined) words.push(String(this.#init.pid));
    await this.#ask(words.join(" "), "repair the guest");
  }

  async setClock(clockMs: number): Promise<void> {
    await this.#ask(["clock", ...clockWords(clockMs)].join(" "), "set the clock");
  }

  async mount(capacityBytes: number | undefined): Promise<void> {
    if (this.#init !== undefined || this.#isMounting) {
      throw guestFailure("wrong_state", "Cannot mount the disk: it is mounted");
    }
    this.#isMounting = true;
    try {
      await this.#mount(capacityBytes);
      this.#init = await this.#startInit();
    } finally {
      this.#isMounting = false;
    }
  }

  async #mount(capacityBytes: number | undefined): Promise<void> {
    if (!this.#isMounted) {
      if (capacityBytes !== undefined) await this.#awaitCapacity(capacityBytes);
      await this.#ask(`mount-disk ${this.#options.disk}`, "mount the disk", GUEST_LIMITS.mountTimeoutMs);
      this.#isMounted = true;
    }
  }

  /** As `unmount`, for a machine that will be copied: nothing may still hold the disk. */
  async release(): Promise<void> {
    const busy = await this.unmount();
    if (busy !== "") throw guestFailure("internal", `Cannot release the disk: ${busy} is busy`);
  }

  /** Kills everything, writes everything, takes the disk away. Answers what was left busy, or "". */
  async unmount(): Promise<string> {
    const init = this.#init;
    this.work.kill();
    if (init !== undefined) {
      await within(init.ended, GUEST_LIMITS.killTimeoutMs, () =>
        guestFailure("internal", "Cannot unmount the disk: the workload did not end"),
      );
    }
    if (!this.#isMounted) return "";
    const words = await this.#ask("unmount-disk", "unmount the disk", GUEST_LIMITS.unmountTimeoutMs);
    this.#isMounted = false;
    if (words !== "") this.#options.log.warn("disk was busy", { words });
    return words;
  }

  async #ask(command: string, what: string, timeoutMs?: number): Promise<string> {
    try {
      return await this.#options.repair.ask(command, timeoutMs);
    } catch (error) {
      if (!(error instanceof RepairRefusal)) throw error;
      throw guestFailure("internal", `Cannot ${what}: ${error.message}`, error);
    }
  }

  /** A disk of another size than the golden's is resized by the hypervisor: that reaches us a little later. */
  async #awaitCapacity(bytes: number): Promise<void> {
    for (let tries = 0; ; tries++) {
      const size = parseCount(await this.#ask(`block-size ${this.#options.disk}`, "read the disk's size"));
      if (size === bytes) return;
      if (tries === 40) {
        throw guestFailure("wrong_state", `Cannot mount the disk: it has ${size} bytes, not ${bytes}`);
      }
      await sleep(25);
    }
  }

  async #startInit(): Promise<Init> {
    const cgroup = this.work.child("init");
    const child = this.#options.startInit(this.root, cgroup.path, this.#hostname);
    assert(child.stdout, "workload-init has a stdout");
    const reader = new ReportReader(child.stdout);
    const ended = new Promise<void>((resolve) => {
      child.once("exit", () => resolve());
      child.once("error", () => resolve());
    });
    const line = await within(reader.line(), GUEST_LIMITS.mountTimeoutMs, () => {
      child.kill("SIGKILL");
      return guestFailure("internal", "Cannot start the workload: its first process did not answer");
    });
    const pid = line?.startsWith("ready ") ? parseCount(line.slice(6)) : undefined;
    if (pid === undefined || pid < 2) {
      child.kill("SIGKILL");
      throw guestFailure("internal", `Cannot start the workload: ${line ?? "its first process ended"}`);
    }
    const init: Init = { pid, ended };
    const forget = ended.then(() => {
      if (this.#init === init) this.#init = undefined;
      this.#options.log.info("the workload's first process ended");
    });
    ignore(forget);
    return init;
  }
}

function clockWords(clockMs: number): [string, string] {
  const seconds = Math.floor(clockMs / 1000);
  const nanos = Math.min(999_999_999, Math.max(0, Math.round((clockMs - seconds * 1000) * 1e6)));
  return [String(seconds), String(nanos)];
}
