import type { ChildProcess } from "node:child_process";
import { statSync } from "node:fs";
import { assert, type Failure, messageOf } from "@capsem/base";
import {
  createGuestControlLane,
  createGuestDataLane,
  type GuestDataLane,
  type Mux,
  type MuxStream,
  muxTransport,
  pump,
  WIRE_IDENTITY,
} from "@capsem/wire";
import type { Log } from "./log.ts";
import { keepPortOpen, openPort, type Port } from "./port-device.ts";
import { type FileWindow, Relay } from "./relay.ts";

export interface LanesOptions {
  readonly control: string;
  readonly bulk: string;
  /** Has the bulk lane's port. */
  readonly startRelay: (port: string) => ChildProcess;
  readonly agentInstance: string;
  readonly monotonicUs: () => number;
  readonly log: Log;
  /** The control lane of a new generation; everything older is gone. */
  readonly onControl: (mux: Mux) => void;
  /** The host opened a stream on the bulk lane. */
  readonly onBulkStream: (stream: MuxStream) => void;
}

/** What the newest control hello said of the bulk lane. */
interface Expectation {
  readonly marker: Uint8Array;
  readonly generation: number;
}

/** The two lanes of the agent. The host starts each generation, by a hello on the control lane. */
export class Lanes {
  readonly #options: LanesOptions;
  #bulk: GuestDataLane | undefined;
  #relay: Relay | undefined;
  /** Kept for a bulk port that opens later than the control port. */
  #expected: Expectation | undefined;
  #controlReadUs = 0;

  constructor(options: LanesOptions) {
    this.#options = options;
  }

  /**
   * When the bytes were read that came last on the control lane. What they complete is handled before the next are read,
   * so that it is also when the message arrived that is handled now.
   */
  get controlReadUs(): number {
    return this.#controlReadUs;
  }

  /** Never resolves; rejects for a bug. */
  run(): Promise<unknown> {
    const { control, bulk, startRelay } = this.#options;
    return Promise.all([
      keepPortOpen(
        () => openPort(control),
        (port) => this.#openControl(port),
        this.#noteFor("control"),
      ),
      keepPortOpen(
        () => openRelay(bulk, startRelay),
        (relay) => this.#openBulk(relay),
        this.#noteFor("bulk"),
      ),
    ]);
  }

  /** Sends a file's window on a stream of the bulk lane; see `Relay.send`. */
  async sendFile(stream: MuxStream, window: FileWindow): Promise<void> {
    assert(this.#relay, "a stream of the bulk lane came by its relay");
    await this.#relay.send(stream, window, this.#bulk?.mux?.isBetweenFrames === true);
  }

  #openControl(port: Port): void {
    const lane = createGuestControlLane({
      transport: muxTransport(port.output),
      identity: WIRE_IDENTITY,
      agentInstance: this.#options.agentInstance,
      onOpen: refuse,
      onFailure: (failure) => this.#failed("control", failure),
      onGeneration: (mux, hello) => {
        this.#expected = { marker: hello.bulk_marker.slice(), generation: hello.lane_generation };
        this.#expectBulk();
        this.#options.onControl(mux);
        // The first of a host is no news to it, and it waits: the console is slow.
        if (hello.lane_generation > 1)
          this.#options.log.info("lane generation", { generation: hello.lane_generation });
      },
    });
    // The first listener, before anything is made of them.
    port.input.on("data", () => {
      this.#controlReadUs = this.#options.monotonicUs();
    });
    pump(port.input, lane);
  }

  #openBulk(relay: Relay): void {
    this.#relay = relay;
    const lane = createGuestDataLane({
      transport: relay,
      onOpen: this.#options.onBulkStream,
      onFailure: (failure) => this.#failed("bulk", failure),
      onGeneration: () => undefined,
    });
    this.#bulk = lane;
    this.#expectBulk();
    pump(relay.input, lane);
  }

  #expectBulk(): void {
    if (this.#bulk === undefined || this.#expected === undefined) return;
    this.#bulk.expect(this.#expected.marker, this.#expected.generation);
  }

  #failed(lane: string, failure: Failure): void {
    this.#options.log.warn("lane failed", { lane, kind: failure.kind, error: failure.message });
  }

  #noteFor(lane: string): (error: unknown) => void {
    return (error) => this.#options.log.warn("port not open", { lane, error: messageOf(error) });
  }
}

/** The host opens no stream on the control lane. */
function refuse(stream: MuxStream): void {
  stream.reset("no_such_port");
}

/** Throws as the system does where there is no port yet, before a process is started for it. */
function openRelay(port: string, startRelay: (port: string) => ChildProcess): Relay {
  statSync(port);
  return new Relay(startRelay(port));
}
