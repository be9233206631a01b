import type { ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { assert, ignore, messageOf, sleep, within } from "@capsem/base";
import type { HostBody } from "@capsem/wire";
import { type Cgroup, prepareWork } from "./cgroup.ts";
import { type Environment, parseEnvironment } from "./environment.ts";
import { guestFailure } from "./guest-error.ts";
import { parseCount } from "./helper-protocol.ts";
import { GUEST_LIMITS } from "./limits.ts";
import type { Log } from "./log.ts";
import { type Repair, RepairRefusal } from "./repair.ts";
import { ReportReader } from "./report-reader.ts";
import type { Traffic } from "./traffic.ts";

export interface WorkloadOptions {
  /** Where the workload root is mounted, and the device that carries it. */
  readonly root: string;
  readonly disk: string;
  readonly work: Cgroup;
  readonly memoryTotalBytes: number;
  readonly repair: Repair;
  /** Runs as long as the workload's first process does. */
  readonly traffic: Traffic;
  readonly log: Log;
  /** Starts `capsem-helper workload-init`, which waits to be told its name. */
  readonly startInit: (root: string, cgroup: string) => ChildProcess;
}

interface Init {
  readonly pid: number;
  readonly child: ChildProcess;
  readonly reader: ReportReader;
  readonly ended: Promise<void>;
  /** Its end may be heard before its last words are. */
  isOver: boolean;
}

/** The workload: its disk, its root and its namespaces, from the mount to the unmount. */
export class Workload {
  readonly #options: WorkloadOptions;
  readonly work: Cgroup;
  readonly root: string;
  environment: Environment = new Map();
  #hostname = "capsem";
  #init: Init | undefined;
  /** The next workload's, in namespaces of its own: it waits for its root, in a golden too. */
  #prepared: Init | undefined;
  #preparing: Promise<Init> | undefined;
  #isMounted: boolean;
  #mounting: Promise<void> | undefined;
  #unmounting: Promise<string> | undefined;

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
    if (this.#init !== undefined || this.#mounting !== undefined) {
      throw guestFailure("wrong_state", "Cannot mount the disk: it is mounted");
    }
    this.#mounting = this.#bringUp(capacityBytes).finally(() => {
      this.#mounting = undefined;
    });
    return this.#mounting;
  }

  /** Has the first process of the next workload stand ready. A mount that finds none starts one. */
  async prepareInit(): Promise<void> {
    if (this.#init !== undefined || this.#mounting !== undefined || this.#unmounting !== undefined) return;
    try {
      await this.#nextInit();
    } catch (error) {
      this.#options.log.warn("the workload's first process is not prepared", { error: messageOf(error) });
    }
  }

  async #bringUp(capacityBytes: number | undefined): Promise<void> {
    this.#checkWanted();
    await this.#mount(capacityBytes);
    this.#checkWanted();
    const init = await this.#startInit();
    this.#prepared = undefined;
    this.#init = init;
  }

  /** An unmount waits for what it meets. */
  #checkWanted(): void {
    if (this.#unmounting === undefined) return;
    throw guestFailure("wrong_state", "Cannot mount the disk: it is being unmounted");
  }

  #nextInit(): Promise<Init> {
    if (this.#preparing !== undefined) return this.#preparing;
    if (this.#prepared !== undefined) return Promise.resolve(this.#prepared);
    this.#preparing = this.#startPrepared().finally(() => {
      this.#preparing = undefined;
    });
    return this.#preparing;
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
  unmount(): Promise<string> {
    this.#unmounting ??= this.#unmount().finally(() => {
      this.#unmounting = undefined;
    });
    return this.#unmounting;
  }

  async #unmount(): Promise<string> {
    this.work.kill();
    // What is being started is killed by that, or given up at its next step; each has its own time limits.
    await Promise.allSettled([this.#mounting, this.#preparing]);
    const init = this.#init ?? this.#prepared;
    this.work.kill();
    if (init !== undefined) {
      await within(init.ended, GUEST_LIMITS.killTimeoutMs, () =>
        guestFailure("internal", "Cannot unmount the disk: the workload did not end"),
      );
    }
    await this.#options.traffic.close();
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
    const init = await this.#nextInit();
    this.#checkWanted();
    init.child.stdin?.write(`start ${this.#hostname}\n`);
    await this.#answer(init.child, init.reader, "ready");
    if (init.isOver) throw guestFailure("internal", "Cannot start the workload: its first process ended");
    return init;
  }

  /** With its namespaces, and the relay of tool calls in them. */
  async #startPrepared(): Promise<Init> {
    const child = this.#options.startInit(this.root, this.work.child("init").path);
    assert(child.stdin && child.stdout, "workload-init has a stdin and a stdout");
    child.stdin.on("error", () => child.kill("SIGKILL"));
    const reader = new ReportReader(child.stdout);
    const ended = new Promise<void>((resolve) => {
      child.once("exit", () => resolve());
      child.once("error", () => resolve());
    });
    const pid = await this.#answer(child, reader, "prepared");
    const init: Init = { pid, child, reader, ended, isOver: false };
    this.#prepared = init;
    ignore(ended.then(() => this.#forget(init)));
    await this.#options.traffic.open(init.pid);
    return init;
  }

  /** Its process id, which each of its answers names. */
  async #answer(child: ChildProcess, reader: ReportReader, word: "prepared" | "ready"): Promise<number> {
    const line = await within(reader.line(), GUEST_LIMITS.mountTimeoutMs, () => {
      child.kill("SIGKILL");
      return guestFailure("internal", "Cannot start the workload: its first process did not answer");
    });
    const pid = line?.startsWith(`${word} `) ? parseCount(line.slice(word.length + 1)) : undefined;
    if (pid === undefined || pid < 2) {
      child.kill("SIGKILL");
      throw guestFailure("internal", `Cannot start the workload: ${line ?? "its first process ended"}`);
    }
    return pid;
  }

  #forget(init: Init): void {
    this.#options.log.info("the workload's first process ended");
    init.isOver = true;
    if (this.#init === init) this.#init = undefined;
    else if (this.#prepared === init) this.#prepared = undefined;
    else return;
    ignore(this.#options.traffic.close());
  }
}

function clockWords(clockMs: number): [string, string] {
  const seconds = Math.floor(clockMs / 1000);
  const nanos = Math.min(999_999_999, Math.max(0, Math.round((clockMs - seconds * 1000) * 1e6)));
  return [String(seconds), String(nanos)];
}
