import { Failure, messageOf } from "@capsem/base";
import { type GuestMessage, guestControlPort, type Mux, type MuxStream, PORTS } from "@capsem/wire";
import { Cgroup } from "./cgroup.ts";
import { Files } from "./files.ts";
import { Gate } from "./gate.ts";
import { HelperCall } from "./helper-call.ts";
import { Jobs } from "./jobs.ts";
import { Lanes } from "./lanes.ts";
import { Listings } from "./listing.ts";
import type { Log } from "./log.ts";
import { Outbox } from "./outbox.ts";
import type { GuestPlaces, Powers } from "./powers.ts";
import { Repair } from "./repair.ts";
import { Requests } from "./requests.ts";
import { Tool } from "./tool.ts";
import { Traffic } from "./traffic.ts";
import { Transfers } from "./transfers.ts";
import { Trees } from "./trees.ts";
import { Workload } from "./workload.ts";
import { ZygotePool } from "./zygote-pool.ts";

/** Puts the parts of the guest agent together. */
export class GuestAgent {
  readonly #powers: Powers;
  readonly #log: Log;
  readonly #instance: string;
  readonly #workload: Workload;
  readonly #pool: ZygotePool;
  readonly #repair: Repair;
  readonly #jobs: Jobs;
  readonly #transfers = new Transfers();
  readonly #outbox: Outbox;
  readonly #requests: Requests;
  readonly #lanes: Lanes;

  constructor(powers: Powers, places: GuestPlaces, log: Log) {
    this.#powers = powers;
    this.#log = log;
    // The host only compares it; a clone of a golden keeps the golden's.
    this.#instance = Buffer.from(powers.random(8)).toString("hex");
    this.#repair = new Repair(() => powers.startRepair());
    this.#pool = new ZygotePool(
      () => powers.startZygote(),
      (pid) => powers.isAtRest(pid),
      (error) => log.error("helper not started", { error: messageOf(error) }),
    );
    const work = new Cgroup(`${places.cgroups}/work`);
    const traffic = new Traffic({ start: () => powers.startTraffic(), log });
    this.#workload = new Workload({
      root: places.workloadRoot,
      disk: places.disk,
      work,
      memoryTotalBytes: powers.machine().memoryTotalBytes,
      repair: this.#repair,
      traffic,
      log,
      startInit: (root, cgroup) => powers.startInit(root, cgroup),
    });
    const gate = new Gate();
    this.#outbox = new Outbox(log, () => powers.monotonicUs());
    this.#jobs = new Jobs({
      workload: this.#workload,
      pool: this.#pool,
      gate,
      log,
      monotonicUs: () => powers.monotonicUs(),
    });
    const call = new HelperCall(this.#workload, this.#pool);
    const tool = new Tool(call, work.child("files").path);
    this.#requests = new Requests({
      workload: this.#workload,
      jobs: this.#jobs,
      files: new Files(call, this.#transfers, (stream, window) => this.#lanes.sendFile(stream, window)),
      listings: new Listings(call, tool, () => powers.monotonicUs() / 1000),
      trees: new Trees(call, tool, this.#transfers),
      transfers: this.#transfers,
      traffic,
      gate,
      outbox: this.#outbox,
      log,
      nowMs: () => powers.nowMs(),
      fillHelpers: async () => {
        await this.#workload.prepareInit();
        await this.#pool.fill();
      },
      endWorkload: () => this.#endWorkload(),
      powerOff: () => powers.powerOff(),
    });
    this.#lanes = new Lanes({
      control: places.control,
      bulk: places.bulk,
      startRelay: (port) => powers.startRelay(port),
      agentInstance: this.#instance,
      monotonicUs: () => powers.monotonicUs(),
      log,
      onControl: (mux) => this.#startControl(mux),
      onBulkStream: (stream) => this.#acceptStream(stream),
    });
  }

  /** Never resolves; rejects for a bug. */
  run(): Promise<unknown> {
    const running = this.#lanes.run();
    this.#workload.prepare();
    this.#repair.start();
    this.#pool.start();
    return running;
  }

  #startControl(mux: Mux): void {
    this.#requests.renew();
    const port = guestControlPort(mux.open(PORTS.control.number, "control"));
    this.#outbox.connect(port, this.#ready());
    this.#receive(port.messages()).catch((error: unknown) => {
      if (!(error instanceof Failure)) throw error;
      if (error.kind === "lane_lost") return;
      // What the host said cannot be trusted any more; it starts a new generation.
      this.#log.warn("control stream broken", { kind: error.kind, error: messageOf(error) });
      mux.close();
    });
  }

  async #receive(messages: ReturnType<ReturnType<typeof guestControlPort>["messages"]>): Promise<void> {
    for await (const message of messages) this.#requests.handle(message, this.#lanes.controlReadUs);
  }

  #ready(): GuestMessage {
    const { uptimeMs, memoryTotalBytes, cpus, clocksource } = this.#powers.machine();
    return {
      name: "ready",
      body: {
        agent_instance: this.#instance,
        uptime_ms: uptimeMs,
        memory_total_bytes: memoryTotalBytes,
        cpus,
        clocksource,
        mounted: this.#workload.isMounted,
      },
    };
  }

  #acceptStream(stream: MuxStream): void {
    if (stream.port === PORTS.job.number) this.#jobs.offer(stream);
    else if (stream.port === PORTS.file.number) this.#transfers.offer(stream);
    else stream.reset("no_such_port");
  }

  async #endWorkload(): Promise<void> {
    this.#pool.close();
    await this.#workload.unmount();
  }
}
