import { assert, type Deferred, defer, Failure } from "@capsem/base";
import { type Lane, LaneCore, laneMethods } from "./lane.ts";
import {
  CONTROL_MAGIC,
  type DataHello,
  encodeHello,
  type GuestHello,
  MARKER_BYTES,
  mismatchOf,
  parseAnyControlHello,
  parseDataHello,
  parseGuestHello,
  type WireIdentity,
} from "./lane-hello.ts";
import { WIRE_LIMITS } from "./limits.ts";
import type { Mux, MuxStream, Transport } from "./types.ts";

export interface StartedLane<H> {
  readonly mux: Mux;
  /** The guest's claims. */
  readonly hello: H;
}

export interface HostLaneOptions {
  readonly transport: Transport;
  readonly onOpen: (stream: MuxStream) => void;
  readonly helloTimeoutMs?: number;
}

export interface HostControlStart {
  /** Larger than every earlier one of this VM. */
  readonly generation: number;
  /** 32 unpredictable bytes each; the data lanes of this generation start with them. */
  readonly markers: { readonly bulk: Uint8Array; readonly traffic: Uint8Array };
}

/** Failures of `start`: "lane_timeout", "lane_lost", "protocol_mismatch". A later start ends an earlier one. */
export interface HostControlLane extends Lane {
  start(start: HostControlStart): Promise<StartedLane<GuestHello>>;
}

export interface HostDataLane extends Lane {
  /** To be called before the control lane's `start`: the guest answers the control hello here at once. */
  start(marker: Uint8Array, generation: number): Promise<StartedLane<DataHello>>;
}

export function createHostControlLane(
  options: HostLaneOptions & { identity: WireIdentity },
): HostControlLane {
  const { identity } = options;
  const starter = new LaneStarter<GuestHello>(options, (payload, generation) => {
    const any = parseAnyControlHello(payload);
    if (any === undefined || any.lane_generation !== generation) return "skip";
    return mismatchOf(identity, any) ?? parseGuestHello(payload) ?? "skip";
  });
  const { core } = starter;
  return {
    ...laneMethods(core, (message) => starter.lost(message)),
    get mux() {
      return core.mux;
    },
    start({ generation, markers }) {
      checkMarker(markers.bulk);
      checkMarker(markers.traffic);
      const hello = encodeHello(CONTROL_MAGIC, {
        ...identity,
        lane_generation: generation,
        bulk_marker: markers.bulk,
        traffic_marker: markers.traffic,
      });
      const started = starter.start(CONTROL_MAGIC, generation, undefined);
      core.write(hello);
      return started;
    },
  };
}

/**
 * The host's end of the bulk or the traffic lane. The guest speaks first, so that the host's marker finds it
 * waiting; it is written when the guest's was seen.
 */
export function createHostDataLane(options: HostLaneOptions): HostDataLane {
  const starter = new LaneStarter<DataHello>(options, (payload, generation) => {
    const hello = parseDataHello(payload);
    return hello?.lane_generation === generation ? hello : "skip";
  });
  const { core } = starter;
  return {
    ...laneMethods(core, (message) => starter.lost(message)),
    get mux() {
      return core.mux;
    },
    start(marker, generation) {
      checkMarker(marker);
      return starter.start(marker, generation, encodeHello(marker, { lane_generation: generation }));
    },
  };
}

/** Starts the control and the bulk lane of one generation together, in the order that they need. */
export async function startHostLanes(
  lanes: { readonly control: HostControlLane; readonly bulk: HostDataLane },
  start: HostControlStart,
): Promise<{ control: StartedLane<GuestHello>; bulk: StartedLane<DataHello> }> {
  const waiting = lanes.bulk.start(start.markers.bulk, start.generation);
  const [control, bulk] = await Promise.all([lanes.control.start(start), waiting]);
  return { control, bulk };
}

interface Attempt<H> {
  readonly generation: number;
  readonly reply: Uint8Array | undefined;
  readonly done: Deferred<StartedLane<H>>;
  readonly timer: NodeJS.Timeout;
}

/** One start at a time: its deadline, its verdict on a hello, its promise. */
class LaneStarter<H> {
  readonly core: LaneCore;
  readonly #timeoutMs: number;
  #attempt: Attempt<H> | undefined;

  constructor(
    options: HostLaneOptions,
    judge: (payload: Uint8Array, generation: number) => H | Failure | "skip",
  ) {
    this.#timeoutMs = options.helloTimeoutMs ?? WIRE_LIMITS.helloTimeoutMs;
    this.core = new LaneCore({
      role: "host",
      transport: options.transport,
      onOpen: options.onOpen,
      onFlood: (failure) => this.#fail(failure),
      onHello: (payload) => {
        const attempt = this.#attempt;
        if (attempt === undefined) return "stop";
        const verdict = judge(payload, attempt.generation);
        if (verdict === "skip") return "skip";
        if (verdict instanceof Failure) {
          this.#fail(verdict);
          return "stop";
        }
        return (mux) => this.#succeed(attempt, mux, verdict);
      },
    });
  }

  start(word: Uint8Array, generation: number, reply: Uint8Array | undefined): Promise<StartedLane<H>> {
    this.#fail(new Failure("lane_lost", "Cannot start lane: it was started again"));
    if (this.core.isLost) return Promise.reject(new Failure("lane_lost", "Cannot start lane: it is lost"));
    const text = `Cannot start lane: no hello of generation ${generation} within ${this.#timeoutMs} ms`;
    const timer = setTimeout(() => this.#fail(new Failure("lane_timeout", text)), this.#timeoutMs);
    const done = defer<StartedLane<H>>();
    this.core.seek(word, "a new lane generation");
    this.#attempt = { generation, reply, done, timer };
    return done.promise;
  }

  lost(message: string): void {
    this.#fail(new Failure("lane_lost", `Cannot start lane: ${message}`));
  }

  #succeed(attempt: Attempt<H>, mux: Mux, hello: H): void {
    this.#attempt = undefined;
    clearTimeout(attempt.timer);
    if (attempt.reply !== undefined) this.core.write(attempt.reply);
    attempt.done.resolve({ mux, hello });
  }

  #fail(failure: Failure): void {
    const attempt = this.#attempt;
    if (attempt === undefined) return;
    this.#attempt = undefined;
    clearTimeout(attempt.timer);
    this.core.stop(failure.message);
    attempt.done.reject(failure);
  }
}

function checkMarker(marker: Uint8Array): void {
  assert(marker.length === MARKER_BYTES, `a marker has ${marker.length} bytes`);
}
