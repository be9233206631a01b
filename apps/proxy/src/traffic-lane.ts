import type { WorkerPlan } from "@capsem/api";
import { messageOf } from "@capsem/base";
import {
  createHostDataLane,
  type DuplexLike,
  type HostDataLane,
  type MuxStream,
  muxTransport,
  PORTS,
  pump,
} from "@capsem/wire";
import type { Log } from "@capsem/worker";
import { PROXY_LIMITS } from "./limits.ts";

export interface TrafficLaneParts {
  readonly duplex: DuplexLike;
  readonly start: NonNullable<WorkerPlan["lane"]>;
  /** One client of the guest's relay. */
  readonly onClient: (stream: MuxStream) => void;
  readonly log: Log;
}

/**
 * Serves the lane until it is over, and says why. The service holds another end of the same socket for our successor:
 * ours is closed by the end of the process, never shut down.
 */
export async function serveLane({ duplex, start, onClient, log }: TrafficLaneParts): Promise<string> {
  const lane: HostDataLane = createHostDataLane({
    transport: { ...muxTransport(duplex), close: () => undefined },
    onOpen: (stream) => {
      if (stream.port === PORTS.traffic.number) onClient(stream);
      else stream.reset("no_such_port");
    },
    helloTimeoutMs: PROXY_LIMITS.laneWaitMs,
  });
  pump(duplex, lane);
  try {
    const { mux } = await lane.start(Buffer.from(start.marker, "hex"), start.generation);
    log("info", "lane open", { generation: start.generation });
    const { kind, message } = await mux.ended;
    return `the lane: ${kind}, ${message}`;
  } catch (thrown) {
    return `the lane: ${messageOf(thrown)}`;
  }
}
