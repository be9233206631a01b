// The built proxy, started and sealed as the service starts it, with a service and a lane of the test's.
import { randomBytes } from "node:crypto";
import { Socket } from "node:net";
import type { WorkerPlan } from "@capsem/api";
import { native } from "@capsem/native";
import { createGuestDataLane, type GuestDataLane, type Mux, muxTransport, pump } from "@capsem/wire";
import {
  builtWorker,
  confinedWords,
  type End,
  GRANTS_FD,
  LENT_FD,
  type Ready,
  SERVICE_FD,
  startWorker,
} from "@capsem/worker/testing";
import type { ScriptedServers } from "./scripted-servers.ts";
import { ScriptedService } from "./scripted-service.ts";

/** The guest's relay: it keeps its end, whoever is at the other one. */
export class GuestLane {
  /** What a proxy is lent. */
  readonly hostFd: number;
  readonly socket: Socket;
  readonly #lane: GuestDataLane;
  #onMux: (mux: Mux) => void = () => undefined;
  #generation = 0;

  constructor() {
    const [host, guest] = native().socketPair("stream");
    this.hostFd = host;
    this.socket = new Socket({ fd: guest, readable: true, writable: true });
    this.#lane = createGuestDataLane({
      transport: muxTransport(this.socket),
      onOpen: (stream) => stream.reset("refused"),
      onGeneration: (mux) => this.#onMux(mux),
      onFailure: () => undefined,
    });
    pump(this.socket, this.#lane);
  }

  /** A new generation: its start, and the mux once a proxy is there. */
  expect(): { lane: NonNullable<WorkerPlan["lane"]>; mux: Promise<Mux> } {
    this.#generation += 1;
    const marker = randomBytes(32);
    const mux = new Promise<Mux>((resolve) => {
      this.#onMux = resolve;
    });
    this.#lane.expect(marker, this.#generation);
    return { lane: { marker: marker.toString("hex"), generation: this.#generation }, mux };
  }

  close(): void {
    this.socket.destroy();
    native().closeDescriptor(this.hostFd);
  }
}

export interface ProxyProcess {
  readonly pid: number;
  readonly service: ScriptedService;
  readonly ready: Promise<Ready>;
  readonly exited: Promise<End>;
  log(): string;
  grant(kind: "aggregator" | "builtin", generation: number, servers: ScriptedServers): void;
  /** Ends its channel to the service, and waits for it. */
  end(): Promise<End>;
  kill(): void;
}

export interface ProxyProcessOptions {
  readonly lane?: { readonly fd: number; readonly start: NonNullable<WorkerPlan["lane"]> };
  /** Instead of the plan. */
  readonly input?: string;
}

export function startProxy({ lane, input }: ProxyProcessOptions = {}): ProxyProcess {
  const lent = lane === undefined ? [] : [lane.fd];
  const words = confinedWords(builtWorker("proxy"), {
    keepFds: [SERVICE_FD, GRANTS_FD, ...(lane === undefined ? [] : [LENT_FD])],
  });
  const plan: WorkerPlan = {
    ...{ kind: "proxy", scope: lane === undefined ? "host" : "vm_abcdefghij234567", allow_unconfined: false },
    vm: lane === undefined ? null : { id: "vm_abcdefghij234567", name: "box", image: null },
    descriptors: {
      ...{ service: SERVICE_FD, grants: GRANTS_FD },
      ...(lane === undefined ? {} : { lane: LENT_FD }),
    },
    ...(lane === undefined ? {} : { lane: lane.start }),
  };
  const service = new ScriptedService();
  const started = startWorker({ words, plan, input, lent }, (duplex) => service.over(duplex));
  const { pid, ready, exited, log, end, kill } = started;
  return {
    ...{ pid, service, ready, exited, log, end, kill },
    grant: (kind, generation, servers) => servers.over(started.grant({ kind, name: kind, generation })),
  };
}
