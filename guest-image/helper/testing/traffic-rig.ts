/** The real relay of tool calls in a network namespace of its own, and the real far end of its lane. Only for root. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type Deferred, defer } from "@capsem/base";
import {
  createHostDataLane,
  type HostDataLane,
  type Mux,
  type MuxStream,
  muxTransport,
  pump,
} from "@capsem/wire";
import { compile } from "../rig.ts";
import { putCompiled } from "./compiled.ts";
import { NetworkGuest } from "./network-guest.ts";

export const CLIENT = "capsem-mcp-server";
const DIAL_SOURCE = join(import.meta.dirname, "dial.c");

/** What comes one after the other and is waited for. */
export class Arrivals<T> {
  readonly #items: T[] = [];
  readonly #waiting: Deferred<T>[] = [];

  put(item: T): void {
    const first = this.#waiting.shift();
    if (first === undefined) this.#items.push(item);
    else first.resolve(item);
  }

  next(): Promise<T> {
    const item = this.#items.shift();
    if (item !== undefined) return Promise.resolve(item);
    const waiter = defer<T>();
    this.#waiting.push(waiter);
    return waiter.promise;
  }
}

export interface TestLane {
  readonly mux: Mux;
  readonly lane: HostDataLane;
  readonly marker: Buffer;
  readonly streams: Arrivals<MuxStream>;
}

/** `start` and `stop` once a test, `remove` at last. */
export class TrafficRig {
  readonly dir: string;
  readonly binary: string;
  readonly client: string;
  ports = new Arrivals<Socket>();
  /** Opened so far: how often the guest's port was. */
  portCount = 0;
  relay!: ChildProcess;
  lines!: Arrivals<string>;
  guest!: NetworkGuest;
  #server!: Server;
  #keeper!: ChildProcess;
  #dial!: ChildProcess;
  #generation = 0;

  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), "capsem-traffic-"));
    this.binary = compile(this.dir);
    this.client = join(this.dir, CLIENT);
    symlinkSync(this.binary, this.client);
    putCompiled(join(this.dir, "dial"), {
      name: "dial",
      command: (out) => ["gcc", "-O1", "-o", out, DIAL_SOURCE],
      sources: [DIAL_SOURCE],
    });
  }

  get pid(): number {
    return this.#keeper.pid ?? 0;
  }

  async start(): Promise<void> {
    this.portCount = 0;
    this.ports = new Arrivals();
    rmSync(join(this.dir, "port"), { force: true });
    this.#server = createServer((socket) => {
      socket.on("error", () => socket.destroy());
      this.portCount += 1;
      this.ports.put(socket);
    });
    this.#server.listen(join(this.dir, "port"));
    await once(this.#server, "listening");
    this.#keeper = spawn("unshare", ["-n", "sleep", "100000"], { stdio: "ignore" });
    const own = readlinkSync("/proc/self/ns/net");
    while (readlinkSync(`/proc/${this.pid}/ns/net`) === own)
      await new Promise((resolve) => setImmediate(resolve));
    await this.startRelay();
    const socket = join(this.dir, "socket");
    rmSync(socket, { force: true });
    const dial = [`--net=/proc/${this.pid}/ns/net`, join(this.dir, "dial"), socket];
    this.#dial = spawn("nsenter", dial, { stdio: ["pipe", "pipe", "inherit"] });
    await once(this.#dial.stdout as NodeJS.ReadableStream, "data");
    // For the guest's own user.
    chmodSync(this.dir, 0o711);
    chmodSync(socket, 0o666);
    this.guest = new NetworkGuest(this.pid, socket);
    await this.guest.ready;
  }

  async startRelay(): Promise<void> {
    this.relay = spawn(this.binary, ["traffic", join(this.dir, "port")], {
      stdio: ["pipe", "pipe", "inherit"],
      env: {},
    });
    this.relay.stdin?.on("error", () => undefined);
    this.lines = new Arrivals();
    const { lines } = this;
    createInterface({ input: this.relay.stdout as NodeJS.ReadableStream }).on("line", (line) =>
      lines.put(line),
    );
    this.order(`init ${this.pid}`);
    const line = await this.lines.next();
    if (line !== "ready") throw new Error(`the relay says ${line}`);
  }

  order(line: string): void {
    this.relay.stdin?.write(`${line}\n`);
  }

  /** A new generation on `port`, as a new proxy would have it; `before` is what an older one left in the lane. */
  async lane(port: Socket, before?: Uint8Array): Promise<TestLane> {
    this.#generation += 1;
    const marker = randomBytes(32);
    const streams = new Arrivals<MuxStream>();
    for (const event of ["data", "end", "close", "drain"]) port.removeAllListeners(event);
    const lane = createHostDataLane({
      transport: muxTransport(port),
      onOpen: (stream) => streams.put(stream),
    });
    const started = lane.start(marker, this.#generation);
    if (before !== undefined) port.write(before);
    pump(port, lane);
    port.resume();
    this.order(`lane ${this.#generation} ${marker.toString("hex")}`);
    const said = await this.lines.next();
    if (said !== `ok ${this.#generation}`) throw new Error(`the relay says ${said}`);
    return { mux: (await started).mux, lane, marker, streams };
  }

  /** For a client that connects: the port, and a lane on it. */
  async firstLane(): Promise<TestLane & { port: Socket }> {
    const port = await this.ports.next();
    return { port, ...(await this.lane(port)) };
  }

  /** The thin client as a program of the guest starts it. */
  spawnClient(env: NodeJS.ProcessEnv = {}): ChildProcess {
    return spawn("nsenter", [`--net=/proc/${this.pid}/ns/net`, this.client], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...env },
    });
  }

  relayDescriptors(): number {
    return readdirSync(`/proc/${this.relay.pid}/fd`).length;
  }

  relayResidentBytes(): number {
    const status = readFileSync(`/proc/${this.relay.pid}/status`, "utf8");
    return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1] ?? 0) * 1024;
  }

  /** Runs a shell line in the guest's network. */
  sh(line: string): string {
    return execFileSync("nsenter", [`--net=/proc/${this.pid}/ns/net`, "sh", "-c", line], {
      encoding: "utf8",
    });
  }

  /** As if there were no such device. */
  closePort(): void {
    rmSync(join(this.dir, "port"));
  }

  async stopRelay(): Promise<void> {
    if (this.relay.exitCode !== null || this.relay.signalCode !== null) return;
    const ended = once(this.relay, "exit");
    this.relay.stdin?.end();
    await ended;
  }

  async stop(): Promise<void> {
    this.guest.stop();
    this.#dial.stdin?.end();
    await this.stopRelay();
    this.#keeper.kill("SIGKILL");
    this.#server.close();
  }

  remove(): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** All of a stream, or so many bytes of it. */
export async function readBytes(stream: MuxStream, bytes = Number.POSITIVE_INFINITY): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for (let length = 0; length < bytes; ) {
    const chunk = await stream.read();
    if (chunk === null) break;
    parts.push(chunk);
    length += chunk.length;
  }
  return Buffer.concat(parts);
}

/** The process name of the metadata line, and what came behind it. */
export function splitMeta(bytes: Buffer): { name: string; rest: Buffer } {
  const end = bytes.indexOf(10);
  const line = bytes.toString("utf8", 0, end);
  if (!line.startsWith("\0CAPSEM_META:"))
    throw new Error(`no metadata line: ${JSON.stringify(line.slice(0, 40))}`);
  return { name: line.slice(13), rest: bytes.subarray(end + 1) };
}
