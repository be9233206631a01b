import { createServer, type Server, type Socket } from "node:net";
import {
  createMemoryLink,
  createMux,
  encodeMcpMessage,
  encodeMetaLine,
  McpFrameReader,
  type McpMessage,
  type Mux,
  type MuxStream,
} from "@capsem/wire";
import { TrafficDoor } from "../accept.ts";
import { DOWN_LIMITS, type DownLimits } from "../limits.ts";
import { ScriptedRail } from "./scripted-rail.ts";

export interface LaneRig {
  readonly rail: ScriptedRail;
  readonly door: TrafficDoor;
  readonly guest: Mux;
  /** The host's ends of the streams that the guest opened. */
  readonly hostStreams: MuxStream[];
  readonly reported: unknown[];
  /** Moves the door's clock. */
  readonly clock: { nowMs: number };
}

/** A lane between a guest end that the test plays, and a door with a scripted rail behind it. */
export function laneRig(limits: Partial<DownLimits> = {}): LaneRig {
  const rail = new ScriptedRail();
  const reported: unknown[] = [];
  const clock = { nowMs: 0 };
  let sessions = 0;
  const door = new TrafficDoor({
    rail,
    newSessionId: () => {
      sessions += 1;
      return `session-${sessions}`;
    },
    nowMs: () => clock.nowMs,
    report: (thrown) => reported.push(thrown),
    limits: { ...DOWN_LIMITS, ...limits },
  });
  const { a, b } = createMemoryLink();
  const hostStreams: MuxStream[] = [];
  const host = createMux({
    role: "host",
    transport: a,
    onOpen: (stream) => {
      hostStreams.push(stream);
      void door.accept(stream);
    },
  });
  const guest = createMux({ role: "guest", transport: b, onOpen: () => undefined });
  a.onChunk((chunk) => host.receive(chunk));
  b.onChunk((chunk) => guest.receive(chunk));
  return { rail, door, guest, hostStreams, reported, clock };
}

/** Opens a stream and says who it is. */
export function connect(rig: LaneRig, processName = "agent"): MuxStream {
  const stream = rig.guest.open(5002, "");
  void stream.write(encodeMetaLine(processName));
  return stream;
}

/** The guest's end of a framed client. */
export class FramedGuest {
  readonly stream: MuxStream;
  readonly messages: McpMessage[] = [];
  /** How the host's direction ended. */
  readonly ended: Promise<"end" | "reset">;
  #waiters: (() => void)[] = [];

  constructor(rig: LaneRig, processName?: string) {
    this.stream = connect(rig, processName);
    this.ended = this.#read();
  }

  send(streamId: number, message: unknown, processName = ""): void {
    const text = typeof message === "string" ? message : JSON.stringify(message);
    for (const frame of encodeMcpMessage({ streamId, processName }, text)) void this.stream.write(frame);
  }

  write(hex: string): void {
    void this.stream.write(new Uint8Array(Buffer.from(hex.replaceAll(" ", ""), "hex")));
  }

  /** The messages, once there are so many. */
  async took(count: number): Promise<McpMessage[]> {
    while (this.messages.length < count) await new Promise<void>((resolve) => this.#waiters.push(resolve));
    return this.messages;
  }

  /** `id text` of each message. */
  async lines(count: number): Promise<string[]> {
    return (await this.took(count)).map(({ streamId, text }) => `${streamId} ${text}`);
  }

  async #read(): Promise<"end" | "reset"> {
    const reader = new McpFrameReader();
    try {
      for (let chunk = await this.stream.read(); chunk !== null; chunk = await this.stream.read()) {
        reader.push(chunk, (message) => this.messages.push(message));
        for (const waiter of this.#waiters.splice(0)) waiter();
      }
      return "end";
    } catch {
      return "reset";
    }
  }
}

/** A port on loopback whose connections come in as streams of the lane, as the guest's relay does it. */
export async function bridge(rig: LaneRig, processName = "agent"): Promise<{ port: number; close(): void }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    join(socket, connect(rig, processName));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    port: address.port,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function join(socket: Socket, stream: MuxStream): void {
  const fromGuest = async () => {
    for await (const chunk of socket) await stream.write(new Uint8Array(chunk as Buffer));
    stream.end();
  };
  const toGuest = async () => {
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) socket.write(chunk);
    socket.end();
  };
  fromGuest().catch(() => stream.reset("cancelled"));
  toGuest().catch(() => socket.destroy());
}

/** Turns of the event loop until it holds: what crosses the link takes a few. */
export async function until(holds: () => boolean, what: string): Promise<void> {
  for (let turn = 0; turn < 2_000; turn += 1) {
    if (holds()) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error(`it never came to: ${what}`);
}
