import type { SpawnPlan } from "@capsem/api";
import { Failure, ignore, messageOf } from "@capsem/base";
import type { Seal, SealReport, SealSubjects } from "@capsem/jail";
import {
  type Hypervisor,
  joinDisk,
  onPortChange,
  pause,
  quit,
  restore,
  resume,
  saveState,
  startHypervisor,
} from "@capsem/vmm";
import { encodeMessagePack, type GuestMessage } from "@capsem/wire";
import { confine } from "./confine.ts";
import { consoleLines } from "./console-lines.ts";
import { Files } from "./files.ts";
import { GuestLink } from "./guest-link.ts";
import { Health } from "./health.ts";
import { Jobs } from "./jobs.ts";
import { OWNER_LIMITS } from "./limits.ts";
import type { OwnerPowers } from "./powers.ts";

/** One VM on its hypervisor: how it comes up, is claimed, and ends. The plan's kind decides the way. */
export class Machine {
  readonly jobs: Jobs;
  readonly files: Files;
  readonly health: Health;
  readonly #plan: SpawnPlan;
  readonly #powers: OwnerPowers;
  readonly #hypervisor: Hypervisor;
  readonly #seal: Seal;
  readonly #link: GuestLink;
  #ending = false;
  #isTrafficOpen = false;
  #isAgentLost = false;
  #warmCount = 0;

  private constructor(plan: SpawnPlan, powers: OwnerPowers, hypervisor: Hypervisor, seal: Seal) {
    this.#plan = plan;
    this.#powers = powers;
    this.#hypervisor = hypervisor;
    this.#seal = seal;
    this.#link = new GuestLink({
      control: hypervisor.control,
      bulk: hypervisor.bulk,
      random: powers.random,
      log: powers.log,
      helloTimeoutMs: plan.kind === "fork" ? OWNER_LIMITS.requestTimeoutMs : OWNER_LIMITS.coldBootTimeoutMs,
      onMessage: (message) => this.#onMessage(message),
      onAgentLost: (cause) => this.#loseAgent(cause),
      onLaneEnd: (lane) => this.#restartLanes(`the ${lane} lane ended`),
    });
    this.jobs = new Jobs(this.#link, `${plan.folder}/jobs`, powers);
    this.files = new Files(this.#link);
    this.health = new Health({
      ping: (sequence) => this.#link.send({ name: "ping", body: { sequence } }),
      onChange: (guest) => powers.onHealth(guest),
      now: powers.now,
    });
    hypervisor.console.on("data", consoleLines(powers.writeLog, powers.now));
    hypervisor.stderr.on("data", (chunk: Uint8Array) =>
      powers.log("warning", "hypervisor", { text: Buffer.from(chunk).toString("utf8").slice(0, 2000) }),
    );
    ignore(
      hypervisor.ended.then(() => {
        const cause = new Failure("guest_lost", "Cannot go on: the VM ended");
        this.#link.lose(cause);
        this.jobs.lose(cause);
      }),
    );
  }

  static async start(plan: SpawnPlan, powers: OwnerPowers): Promise<Machine> {
    const starting = startHypervisor({
      kind: plan.kind,
      vmId: plan.vm_id,
      cpus: plan.cpus,
      memoryMib: plan.memory_mib,
      accelerator: plan.accelerator,
      qemuBinary: plan.qemu_binary,
      launcher: plan.launcher,
      launcherArguments: powers.launcherArguments(plan),
      descriptors: plan.descriptors,
      diskCapacityBytes: plan.disk_capacity_bytes,
      spawn: powers.spawn,
      sendDescriptors: powers.sendDescriptors,
    });
    ignore(starting);
    // The hypervisor is spawned by now: what the seal prepares is done while that one starts.
    const seal = powers.prepareSeal(plan);
    return new Machine(plan, powers, await starting, seal);
  }

  get pid(): number {
    return this.#hypervisor.pid;
  }

  get ended(): Hypervisor["ended"] {
    return this.#hypervisor.ended;
  }

  /** The guest agent was lost, and the VM ended for it. */
  get isAgentLost(): boolean {
    return this.#isAgentLost;
  }

  /** An end that was asked for. */
  get ending(): boolean {
    return this.#ending;
  }

  /** Until the guest agent answers. The guest runs only once this process is sealed, so that it never meets another. */
  async wake(): Promise<SealReport> {
    // QEMU loads by itself meanwhile, so that the seal takes no time of the start.
    const restored = this.#plan.kind === "fork" ? this.#restore() : Promise.resolve();
    ignore(restored);
    const confinement = await confine(this.#seal, this.#sealSubjects(), this.#powers);
    await restored;
    await joinDisk(this.#hypervisor);
    await resume(this.#hypervisor);
    const ready = await this.#link.start();
    this.#powers.log("info", "guest agent ready", { ...ready });
    this.#watchAgent();
    return confinement;
  }

  /** Only a golden's hypervisor is given a descriptor later, so that no other owner may send one. */
  #sealSubjects(): SealSubjects {
    const { pid: hypervisorPid, qmp } = this.#hypervisor;
    return this.#plan.kind === "golden" ? { hypervisorPid, controlSocket: qmp.socketFd } : { hypervisorPid };
  }

  /** A golden that does not load is a corrupt one, whatever QEMU says of it. */
  async #restore(): Promise<void> {
    try {
      await restore(this.#hypervisor, OWNER_LIMITS.restoreTimeoutMs);
    } catch (cause) {
      throw new Failure("checkpoint_corrupt", "Cannot restore the golden: it does not load", {
        cause,
        detail: messageOf(cause),
      });
    }
  }

  /**
   * Clock, entropy and names first, then the disk; what a claim does again for a VM that waited in a pool. Both are
   * asked at once: one process of the guest does them in their order.
   */
  async prepare(hostname: string): Promise<void> {
    const repaired = this.repair(hostname);
    const mounted = this.#link.requests.ask(
      "mount_disk",
      { capacity_bytes: this.#plan.disk_capacity_bytes },
      { timeoutMs: OWNER_LIMITS.mountTimeoutMs },
    );
    await Promise.all([repaired, mounted]);
  }

  async repair(hostname: string): Promise<void> {
    const { random, now } = this.#powers;
    const machineId = Buffer.from(random(16)).toString("hex");
    await this.#link.requests.ask("boot_config", {
      clock_ms: now(),
      entropy: random(64),
      hostname,
      machine_id: machineId,
    });
  }

  async setEnv(entries: readonly string[]): Promise<void> {
    const bytes = encodeMessagePack(entries);
    await this.files.sendBlob(bytes, (id) =>
      this.#link.requests.ask("set_env", { size: bytes.length }, { id }),
    );
  }

  /**
   * Runs each kind of work once, so that what comes after finds its code compiled and its pages present.
   * Under emulation the first of each costs ten times the next.
   */
  async warm(): Promise<void> {
    for (const argv of WARM_COMMANDS) {
      this.#warmCount += 1;
      const job = `job_warm_${this.#plan.kind}_${this.#warmCount}`;
      await this.jobs.start({
        job,
        argv: [...argv],
        stdin: false,
        time_left_ms: OWNER_LIMITS.requestTimeoutMs,
      });
      await this.jobs.wait(job, AbortSignal.timeout(OWNER_LIMITS.requestTimeoutMs));
      this.jobs.forget(job);
    }
  }

  /**
   * A golden goes through all that its forks will do, in their order and a few times: a save, new lanes, repair, disk,
   * commands. What ran once is not what runs the next time: code is compiled lazily, and remembers what it met later.
   */
  async rehearse(): Promise<void> {
    for (let round = 0; round < REHEARSALS; round += 1) {
      await this.#prepareSave();
      await this.#link.start();
      await this.prepare("golden");
      await this.setEnv(["REHEARSAL=1"]);
      await this.setEnv([]);
      await this.warm();
      await this.files.stat({ path: "/workspace" });
      await this.files.list({ path: "/workspace", depth: 1, offset: 0, limit: 256 });
      // Its answer comes before the next save's.
      await this.#link.send({ name: "ping", body: { sequence: round + 1 } });
    }
  }

  /** Has the agent's helpers stand ready, as before a save: the first command after a claim finds one. */
  async fillHelpers(): Promise<void> {
    await this.#link.requests.ask("prepare_snapshot", { unmount: false });
    await this.#link.requests.ask("thaw", {});
  }

  async pause(): Promise<void> {
    this.health.stop();
    await pause(this.#hypervisor);
  }

  async resume(): Promise<void> {
    await resume(this.#hypervisor);
  }

  /** The golden's own end: quiet, saved to the plan's state descriptor, gone. */
  async save(): Promise<void> {
    this.#ending = true;
    this.#link.expectEnd();
    await this.#prepareSave();
    await saveState(this.#hypervisor, OWNER_LIMITS.saveTimeoutMs);
  }

  /** The guest without its disk, and quiet until its lanes start again. */
  async #prepareSave(): Promise<void> {
    await this.#link.requests.ask(
      "prepare_snapshot",
      { unmount: true },
      { timeoutMs: OWNER_LIMITS.mountTimeoutMs },
    );
  }

  /** The guest's relay starts the traffic lane as this generation; see the owner contract. */
  async openTraffic(marker: string, generation: number): Promise<void> {
    await this.#link.requests.ask("reopen_traffic", {
      marker: Buffer.from(marker, "hex"),
      lane_generation: generation,
    });
  }

  async signal(job: string, signal: number, tree: boolean): Promise<void> {
    this.jobs.get(job);
    await this.#link.requests.ask("job_signal", { job, signal, tree });
  }

  async resize(job: string, terminal: { cols: number; rows: number }): Promise<void> {
    this.jobs.get(job);
    await this.#link.requests.ask("job_resize", { job, terminal });
  }

  /** Ends the guest in order where it still answers, else at once. Resolves when the hypervisor is gone. */
  async stop(forced: boolean): Promise<void> {
    this.#ending = true;
    this.#link.expectEnd();
    this.health.stop();
    if (!forced) {
      try {
        await this.#link.requests.ask("shutdown", {}, { timeoutMs: OWNER_LIMITS.shutdownTimeoutMs });
        await quit(this.#hypervisor, 1_000);
      } catch (cause) {
        this.#powers.log("warning", "guest did not end in order", { cause: String(cause) });
      }
    }
    this.#hypervisor.kill();
    await this.#hypervisor.ended;
  }

  kill(): void {
    this.#link.expectEnd();
    this.#hypervisor.kill();
  }

  /** The agent's end of the control port closes and opens again: its process ended and was started anew. */
  #watchAgent(): void {
    let wasClosed = false;
    onPortChange(this.#hypervisor, (port, open) => {
      if (port === "traffic") this.#onTraffic(open);
      if (port !== "control") return;
      // A restored machine reports the port that stands open once more: only a close makes an open news.
      if (!open) wasClosed = true;
      if (!open || !wasClosed) return;
      wasClosed = false;
      this.#restartLanes("the guest agent opened its control port again");
    });
  }

  /** A restored machine reports the port that is closed once more; every open is news, as the relay may be another. */
  #onTraffic(isOpen: boolean): void {
    if (!isOpen && !this.#isTrafficOpen) return;
    this.#isTrafficOpen = isOpen;
    this.#powers.onTraffic(isOpen);
  }

  #restartLanes(why: string): void {
    if (this.#ending || this.#isAgentLost) return;
    this.#powers.log("warning", "lanes start again", { why });
    this.#link.start().catch((cause: unknown) => {
      this.#powers.log("error", "lanes did not start again", { cause: String(cause) });
      this.#loseAgent(new Failure("guest_lost", "Cannot go on: the guest agent does not answer"));
    });
  }

  /**
   * Another agent than before, or none: the workload died with the old one and its disk is half mounted. There is
   * nothing to go on with, so the VM ends here and says why; a retained one starts again from its disk.
   */
  #loseAgent(cause: Failure): void {
    this.jobs.lose(cause);
    if (this.#ending || this.#isAgentLost || this.#hypervisor.qmp.isOver) return;
    this.#isAgentLost = true;
    this.#hypervisor.kill();
  }

  #onMessage(message: GuestMessage): void {
    if (message.name === "pong") this.health.onPong(message.body);
    else if (message.name === "job_done") {
      this.jobs
        .onDone(message.body)
        .catch((cause: unknown) => this.#powers.log("error", "job end failed", { cause: String(cause) }));
    }
  }
}

const REHEARSALS = 5;

const WARM_COMMANDS: readonly (readonly string[])[] = [
  ["true"],
  ["bash", "-c", "true"],
  ["bash", "-lc", "ls / > /dev/null; true"],
  ["true"],
];
