import { type Deferred, defer, Failure, ignore, within } from "@capsem/base";
import {
  createHostControlLane,
  createHostDataLane,
  type DuplexLike,
  type GuestBody,
  type GuestMessage,
  type HostControlLane,
  type HostDataLane,
  type HostMessage,
  hostControlPort,
  type Mux,
  type MuxStream,
  muxTransport,
  PORTS,
  pump,
  startHostLanes,
  WIRE_IDENTITY,
} from "@capsem/wire";
import type { Log } from "@capsem/worker";
import { GuestRequests } from "./guest-requests.ts";

export interface GuestLinkOptions {
  readonly control: DuplexLike;
  readonly bulk: DuplexLike;
  readonly random: (bytes: number) => Uint8Array;
  readonly log: Log;
  /** How long the agent may take to answer a new generation: a boot, or a moment. */
  readonly helloTimeoutMs: number;
  onMessage(message: GuestMessage): void;
  /** The agent that ran before is gone; what it had open ends with this cause. */
  onAgentLost(cause: Failure): void;
  /** A lane ended by itself while the guest runs: a violation of its rules, or a lost device. */
  onLaneEnd(lane: "control" | "bulk"): void;
}

/** The two lanes of an owner and the control stream on them: one generation at a time. */
export class GuestLink {
  readonly requests: GuestRequests;
  readonly #options: GuestLinkOptions;
  readonly #control: HostControlLane;
  readonly #bulk: HostDataLane;
  #generation = 0;
  #isOver = false;
  #isEndAsked = false;
  #instance: string | null = null;
  #bulkMux: Mux | null = null;
  #send: ((message: HostMessage) => Promise<void>) | null = null;
  #ready: Deferred<GuestBody<"ready">> = freshReady();
  #newest: Promise<GuestBody<"ready">> | null = null;

  constructor(options: GuestLinkOptions) {
    this.#options = options;
    this.requests = new GuestRequests(`r${Buffer.from(options.random(6)).toString("hex")}_`);
    const { helloTimeoutMs } = options;
    this.#control = createHostControlLane({
      identity: WIRE_IDENTITY,
      transport: muxTransport(options.control),
      onOpen: (stream) => this.#accept(stream),
      helloTimeoutMs,
    });
    this.#bulk = createHostDataLane({
      transport: muxTransport(options.bulk),
      onOpen: (stream) => stream.reset("refused"),
      helloTimeoutMs,
    });
    pump(options.control, this.#control);
    pump(options.bulk, this.#bulk);
  }

  /**
   * Starts, or starts again, both lanes with a new generation; resolves when the agent is ready. A start that a later
   * one overtakes ends as that one does.
   */
  start(): Promise<GuestBody<"ready">> {
    this.#generation += 1;
    const overtaken = new Failure("guest_lost", "Cannot go on: the guest lanes are starting again");
    this.requests.disconnect(overtaken);
    this.#ready.reject(overtaken);
    this.#ready = freshReady();
    this.#newest = this.#startAs(this.#generation);
    return this.#newest;
  }

  async #startAs(generation: number): Promise<GuestBody<"ready">> {
    try {
      return await this.#startLanes(generation);
    } catch (cause) {
      if (generation === this.#generation || this.#newest === null) throw cause;
      return this.#newest;
    }
  }

  async #startLanes(generation: number): Promise<GuestBody<"ready">> {
    const timeoutMs = this.#options.helloTimeoutMs;
    const markers = { bulk: this.#options.random(32), traffic: this.#options.random(32) };
    const lanes = { control: this.#control, bulk: this.#bulk };
    const { control, bulk } = await startHostLanes(lanes, { generation, markers });
    if (generation !== this.#generation) throw new Failure("lane_lost", "Cannot go on: a later start began");
    this.#watch("control", control.mux, generation);
    this.#watch("bulk", bulk.mux, generation);
    this.#bulkMux = bulk.mux;
    if (this.#instance !== null && this.#instance !== control.hello.agent_instance) {
      this.#options.onAgentLost(
        new Failure("guest_lost", "Cannot go on: the guest agent was lost and started again"),
      );
    }
    this.#instance = control.hello.agent_instance;
    return within(
      this.#ready.promise,
      timeoutMs,
      () => new Failure("boot_timeout", `Cannot reach the guest agent: not ready in ${timeoutMs} ms`),
    );
  }

  bulk(): Mux {
    if (this.#bulkMux === null)
      throw new Failure("wrong_state", "Cannot reach the guest: the bulk lane is not up");
    return this.#bulkMux;
  }

  /** A message that gets no answer by id. */
  async send(message: HostMessage): Promise<void> {
    if (this.#send === null)
      throw new Failure("wrong_state", "Cannot reach the guest agent: it is not connected");
    await this.#send(message);
  }

  /** From here on the guest may end, and that is no news. */
  expectEnd(): void {
    this.#isEndAsked = true;
  }

  /** The hypervisor ended: everything that waits ends with `cause`. */
  lose(cause: Failure): void {
    this.#isOver = true;
    this.requests.disconnect(cause);
    this.#ready.reject(cause);
  }

  /** The end of a mux that is still the current one was nobody's wish here. */
  #watch(lane: "control" | "bulk", mux: Mux, generation: number): void {
    void mux.ended.then(({ kind, message }) => {
      // "lost" is the transport's end: the hypervisor's own end follows and says why.
      if (this.#isOver || kind === "lost" || generation !== this.#generation) return;
      this.#options.log("warning", "lane ended", { lane, kind, message });
      this.#options.onLaneEnd(lane);
    });
  }

  #accept(stream: MuxStream): void {
    if (stream.port !== PORTS.control.number) {
      stream.reset("no_such_port");
      return;
    }
    const port = hostControlPort(stream);
    const send = (message: HostMessage) => port.send(message);
    this.#send = send;
    this.requests.connect(send);
    this.#receive(port.messages()).catch((cause: unknown) => {
      if (this.#isEndAsked) this.#options.log("info", "control stream ended");
      else this.#options.log("warning", "control stream ended", { cause: String(cause) });
    });
  }

  async #receive(messages: AsyncIterable<GuestMessage>): Promise<void> {
    for await (const message of messages) {
      if (this.requests.settle(message)) continue;
      if (message.name === "ready") this.#ready.resolve(message.body);
      this.#options.onMessage(message);
    }
  }
}

function freshReady(): Deferred<GuestBody<"ready">> {
  const ready = defer<GuestBody<"ready">>();
  ignore(ready.promise);
  return ready;
}
