/** The host's side of the lanes, as small as the tests need it. */
import { randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import { type Deferred, defer, ignore } from "@capsem/base";
import {
  createHostControlLane,
  createHostDataLane,
  type GuestBody,
  type GuestMessage,
  type HostControlLane,
  type HostControlPort,
  type HostDataLane,
  type HostMessage,
  type HostMessageName,
  hostControlPort,
  type Mux,
  type MuxStream,
  muxTransport,
  PORTS,
  pump,
  readJobChunks,
  WIRE_IDENTITY,
  writeJobChunks,
} from "@capsem/wire";

type BodyOf<N extends HostMessageName> = Extract<HostMessage, { name: N }>["body"];
type Body<N extends HostMessageName> = Omit<BodyOf<N>, "id">;

export interface JobResult {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly done: GuestBody<"job_done">;
}

export class TestHost {
  readonly messages: GuestMessage[] = [];
  readonly control: HostControlLane;
  readonly bulkLane: HostDataLane;
  readonly sockets: readonly Socket[];
  port: HostControlPort | undefined;
  agentInstance = "";
  #bulk: Mux | undefined;
  #generation = 0;
  #counter = 0;
  readonly #waiters = new Set<{ wants: (message: GuestMessage) => boolean; got: Deferred<GuestMessage> }>();

  constructor(control: Socket, bulk: Socket) {
    this.sockets = [control, bulk];
    const transport = (socket: Socket) => muxTransport(socket);
    this.control = createHostControlLane({
      transport: transport(control),
      identity: WIRE_IDENTITY,
      onOpen: (stream) => this.#accept(stream),
    });
    this.bulkLane = createHostDataLane({
      transport: transport(bulk),
      onOpen: (stream) => stream.reset("refused"),
    });
    pump(control, this.control);
    pump(bulk, this.bulkLane);
  }

  /** A new generation of both lanes; resolves with the agent's `ready`. */
  async startGeneration(): Promise<GuestBody<"ready">> {
    this.#generation += 1;
    const markers = { bulk: randomBytes(32), traffic: randomBytes(32) };
    const ready = this.next((message) => message.name === "ready");
    const [control, bulk] = await Promise.all([
      this.control.start({ generation: this.#generation, markers }),
      this.bulkLane.start(markers.bulk, this.#generation),
    ]).catch((error: unknown) => {
      ignore(ready);
      throw error;
    });
    this.agentInstance = control.hello.agent_instance;
    this.#bulk = bulk.mux;
    return (await ready).body as GuestBody<"ready">;
  }

  get bulk(): Mux {
    if (this.#bulk === undefined) throw new Error("the bulk lane is not started");
    return this.#bulk;
  }

  newId(): string {
    this.#counter += 1;
    return `t${this.#generation}-${this.#counter}`;
  }

  /** The next message that `wants` says yes to. */
  next(wants: (message: GuestMessage) => boolean): Promise<GuestMessage> {
    const got = defer<GuestMessage>();
    this.#waiters.add({ wants, got });
    return got.promise;
  }

  send(message: HostMessage): Promise<void> {
    if (this.port === undefined) throw new Error("there is no control stream");
    return this.port.send(message);
  }

  /** Sends a request and resolves with its first answer. */
  async ask<N extends HostMessageName>(name: N, body: Body<N>, id = this.newId()): Promise<GuestMessage> {
    const answer = this.next(({ body: answered }) => "id" in answered && answered.id === id);
    await this.send({ name, body: { ...body, id } } as unknown as HostMessage);
    return answer;
  }

  async ping(sequence: number): Promise<GuestBody<"pong">> {
    const pong = this.next((message) => message.name === "pong" && message.body.sequence === sequence);
    await this.send({ name: "ping", body: { sequence } });
    return (await pong).body as GuestBody<"pong">;
  }

  /** Runs a job; `input` is fed and stdin is then closed. An error answer is thrown with its kind. */
  async run(start: Partial<Body<"job_start">>, input?: Uint8Array): Promise<JobResult> {
    const job = start.job ?? `job_${randomBytes(8).toString("hex")}`;
    const stream = this.bulk.open(PORTS.job.number, job);
    const output = collect(stream);
    ignore(output);
    const done = this.next((message) => message.name === "job_done" && message.body.job === job);
    ignore(done);
    const first = await this.ask("job_start", { stdin: input !== undefined, ...start, job });
    if (first.name === "error") throw new Error(`${first.body.kind}: ${first.body.message}`);
    if (input !== undefined) await writeJobChunks(stream, "stdin", input);
    stream.end();
    return { ...(await output), done: (await done).body as GuestBody<"job_done"> };
  }

  /** Opens the transfer's stream, sends the request, and gives both. */
  transfer<N extends HostMessageName>(
    name: N,
    body: Body<N>,
  ): { id: string; stream: MuxStream; answer: Promise<GuestMessage> } {
    const id = this.newId();
    const stream = this.bulk.open(PORTS.file.number, id);
    return { id, stream, answer: this.ask(name, body, id) };
  }

  #accept(stream: MuxStream): void {
    if (stream.port !== PORTS.control.number) {
      stream.reset("no_such_port");
      return;
    }
    const port = hostControlPort(stream);
    this.port = port;
    ignore(this.#receive(port));
  }

  async #receive(port: HostControlPort): Promise<void> {
    for await (const message of port.messages()) {
      this.messages.push(message);
      for (const waiter of this.#waiters) {
        if (!waiter.wants(message)) continue;
        this.#waiters.delete(waiter);
        waiter.got.resolve(message);
      }
    }
  }
}

export async function collect(stream: MuxStream): Promise<{ stdout: Buffer; stderr: Buffer }> {
  const parts: { stdout: Uint8Array[]; stderr: Uint8Array[] } = { stdout: [], stderr: [] };
  for await (const { kind, bytes } of readJobChunks(stream, ["stdout", "stderr"])) {
    parts[kind === "stdout" ? "stdout" : "stderr"].push(bytes);
  }
  return { stdout: Buffer.concat(parts.stdout), stderr: Buffer.concat(parts.stderr) };
}

export async function readAll(stream: MuxStream): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) parts.push(chunk);
  return Buffer.concat(parts);
}

/** Looks again each turn of the event loop until it is so, or the test's own time is over. */
export async function settles(isSo: () => Promise<boolean>): Promise<boolean> {
  for (let tries = 0; tries < 1_000; tries++) {
    if (await isSo()) return true;
    const turn = defer<void>();
    setTimeout(turn.resolve, 5);
    await turn.promise;
  }
  return false;
}
