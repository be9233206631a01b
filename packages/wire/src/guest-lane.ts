import { assert, type Failure } from "@capsem/base";
import { type Lane, LaneCore, laneMethods } from "./lane.ts";
import {
  CONTROL_MAGIC,
  type DataHello,
  encodeHello,
  type HostHello,
  MARKER_BYTES,
  mismatchOf,
  parseAnyControlHello,
  parseDataHello,
  parseHostHello,
  type WireIdentity,
} from "./lane-hello.ts";
import type { Mux, MuxStream, Transport } from "./types.ts";

export interface GuestLaneOptions<H> {
  readonly transport: Transport;
  readonly onOpen: (stream: MuxStream) => void;
  /** A generation runs; what belonged to an older one has ended as lost. The mux may be used at once. */
  readonly onGeneration: (mux: Mux, hello: H) => void;
  /** The host cannot be followed: "protocol_mismatch" or "lane_lost". The next start may succeed. */
  readonly onFailure: (failure: Failure) => void;
}

export interface GuestControlOptions extends GuestLaneOptions<HostHello> {
  readonly identity: WireIdentity;
  /** 16 hexadecimal digits that name this run of the agent. */
  readonly agentInstance: string;
}

export interface GuestDataLane extends Lane {
  /** To be called from the control lane's `onGeneration`: writes this side's marker, then waits for the host's. */
  expect(marker: Uint8Array, generation: number): void;
}

/** The guest's end of the control lane: it waits for the host's magic, at any time. */
export function createGuestControlLane(options: GuestControlOptions): Lane {
  const answer = (generation: number) =>
    encodeHello(CONTROL_MAGIC, {
      ...options.identity,
      lane_generation: generation,
      agent_instance: options.agentInstance,
    });
  const core: LaneCore = new LaneCore({
    role: "guest",
    transport: options.transport,
    onOpen: options.onOpen,
    restartWord: CONTROL_MAGIC,
    onFlood: (failure) => {
      core.seek(CONTROL_MAGIC, failure.message);
      options.onFailure(failure);
    },
    onHello: (payload) => {
      const any = parseAnyControlHello(payload);
      if (any === undefined) return "skip";
      const mismatch = mismatchOf(options.identity, any);
      if (mismatch !== undefined) {
        // The host learns of it from our hello.
        core.write(answer(any.lane_generation));
        options.onFailure(mismatch);
        return "skip";
      }
      const hello = parseHostHello(payload);
      if (hello === undefined) return "skip";
      return (mux) => {
        core.write(answer(hello.lane_generation));
        options.onGeneration(mux, hello);
      };
    },
  });
  core.seek(CONTROL_MAGIC, "not started");
  return {
    ...laneMethods(core, () => undefined),
    get mux() {
      return core.mux;
    },
  };
}

/** The guest's end of the bulk or the traffic lane. */
export function createGuestDataLane(options: GuestLaneOptions<DataHello>): GuestDataLane {
  let expected = 0;
  const core: LaneCore = new LaneCore({
    role: "guest",
    transport: options.transport,
    onOpen: options.onOpen,
    onFlood: options.onFailure,
    onHello: (payload) => {
      const hello = parseDataHello(payload);
      if (hello === undefined || hello.lane_generation !== expected) return "skip";
      return (mux) => options.onGeneration(mux, hello);
    },
  });
  return {
    ...laneMethods(core, () => undefined),
    get mux() {
      return core.mux;
    },
    expect(marker, generation) {
      assert(marker.length === MARKER_BYTES, `a marker has ${marker.length} bytes`);
      if (core.isLost) return;
      expected = generation;
      core.seek(marker, "a new lane generation");
      core.write(encodeHello(marker, { lane_generation: generation }));
    },
  };
}
