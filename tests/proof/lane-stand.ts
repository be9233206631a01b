/**
 * All of the product that a program's tool call passes, but for the VM itself: a service with its real ledger, proxy,
 * aggregator, builtin tools and egress, each a confined process. In the VM's place stands this end of its traffic lane,
 * which a port on loopback leads to as the guest's relay does.
 */
import { openSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer, Socket } from "node:net";
import type { LedgerPlan, McpServerFields, WorkerPlan } from "@capsem/api";
import { within } from "@capsem/base";
import { builtPath, native } from "@capsem/native";
import {
  createGuestDataLane,
  encodeMetaLine,
  type Mux,
  type MuxStream,
  muxTransport,
  pump,
} from "@capsem/wire";
import { nodePowers } from "../../apps/service/src/powers-node.ts";
import { type Rig, startRig } from "../../apps/service/src/testing/rig.ts";

const TRAFFIC_PORT = 5002;
const LANE_TIMEOUT_MS = 30_000;

export interface LaneStand {
  readonly rig: Rig;
  readonly vmId: string;
  /** Where programs reach the traffic lane. A proxy is there before anybody connects. */
  readonly port: number;
  /** A stream of the lane, as a program of that name opens it. */
  connect(processName: string): Promise<MuxStream>;
  /** Declares a server that is granted its own address, and approves what it says. Fails by what the service answers. */
  declare(name: string, fields: McpServerFields): Promise<void>;
  stop(): Promise<void>;
}

export async function openLaneStand(): Promise<LaneStand> {
  const guest = new GuestEnd();
  const real = nodePowers(builtPath("owner.cjs"));
  const rig = await startRig({
    script: { opensTraffic: true },
    faults: { lane: () => guest.pair() },
    powers: {
      startWorker: (plan: WorkerPlan, fds: readonly number[]) => {
        if (plan.lane !== undefined) guest.expect(plan.lane.marker, plan.lane.generation);
        return real.startWorker(plan, fds);
      },
      startLedger: (plan: LedgerPlan) => real.startLedger(plan),
    },
  });
  const stop = async () => {
    listener.stop();
    await rig.close();
    guest.close();
  };
  const connect = async (processName: string) => {
    const stream = (await guest.mux()).open(TRAFFIC_PORT, "");
    await stream.write(encodeMetaLine(processName));
    return stream;
  };
  const listener = await listen(connect);
  try {
    const created = await rig.client.post("/vms/create", { name: "box" });
    const { id: vmId } = created.json<{ id: string }>();
    await guest.mux();
    return {
      rig,
      vmId,
      port: listener.port,
      connect,
      declare: (name, fields) => declare(rig, name, fields),
      stop,
    };
  } catch (thrown) {
    await stop();
    throw thrown;
  }
}

async function declare({ client }: Rig, name: string, fields: McpServerFields): Promise<void> {
  const grants = [new URL(fields.url).host];
  const put = await client.put(`/mcp/servers/${name}`, { grants, ...fields });
  if (put.status !== 200) throw new Error(`Cannot declare ${name}: ${put.bytes.toString()}`);
  const seen = await client.post(`/mcp/servers/${name}/refresh`);
  if (seen.status !== 200) throw new Error(`Cannot see ${name}: ${seen.bytes.toString()}`);
}

/** The far end of a VM's traffic lane. */
class GuestEnd {
  #far: Socket | null = null;
  #lane: ReturnType<typeof createGuestDataLane> | null = null;
  #reached: () => void = () => undefined;
  readonly #isReached = new Promise<void>((resolve) => {
    this.#reached = resolve;
  });
  #mux: Mux | null = null;

  /** Both ends as an owner's start wants them: one is kept for proxies, and QEMU would have the other. */
  pair(): [number, number] {
    const [near, far] = native().socketPair("stream");
    this.#far = new Socket({ fd: far, readable: true, writable: true });
    this.#lane = createGuestDataLane({
      transport: muxTransport(this.#far),
      onOpen: (stream) => stream.reset("refused"),
      onGeneration: (mux) => {
        this.#mux = mux;
        this.#reached();
      },
      onFailure: () => undefined,
    });
    pump(this.#far, this.#lane);
    return [near, openSync("/dev/null", "r")];
  }

  expect(marker: string, generation: number): void {
    this.#lane?.expect(Buffer.from(marker, "hex"), generation);
  }

  async mux(): Promise<Mux> {
    const late = () => new Error("Cannot reach the proxy: it does not open its lane");
    await within(this.#isReached, LANE_TIMEOUT_MS, late);
    if (this.#mux === null) throw late();
    return this.#mux;
  }

  close(): void {
    this.#far?.destroy();
  }
}

/** Each connection is a stream of the lane, both ways and with both ends. */
async function listen(connect: LaneStand["connect"]): Promise<{ port: number; stop(): void }> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).once("close", () => sockets.delete(socket));
    connect("suite").then(
      (stream) => join(socket, stream),
      () => socket.destroy(),
    );
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    port: (server.address() as AddressInfo).port,
    stop() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function join(socket: Socket, stream: MuxStream): void {
  const up = async () => {
    for await (const chunk of socket) await stream.write(new Uint8Array(chunk as Buffer));
    stream.end();
  };
  const down = async () => {
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) socket.write(chunk);
    socket.end();
  };
  up().catch(() => stream.reset("cancelled"));
  down().catch(() => socket.destroy());
}
