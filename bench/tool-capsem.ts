// Our own way to a tool server: what runs in a VM is scripted, everything behind its traffic lane is the product.
import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { Socket } from "node:net";
import { join, resolve } from "node:path";
import { type Deferred, defer, within } from "@capsem/base";
import { native } from "@capsem/native";
import {
  createGuestDataLane,
  encodeMcpMessage,
  encodeMetaLine,
  McpFrameReader,
  type Mux,
  muxTransport,
  PORTS,
  pump,
} from "@capsem/wire";
import { onLines } from "./tool-clients.ts";
import { type Contender, type Link, resultOf, shakeHands, textOf } from "./tool-contender.ts";

const root = resolve(import.meta.dirname, "..", "..");
const dist = join(root, "dist");
const START_TIMEOUT_MS = 60_000;
const WORKERS = ["proxy", "aggregator", "builtin", "egress"] as const;

export interface Capsem {
  readonly contenders: readonly Contender[];
  stop(): Promise<void>;
}

/** A service whose one VM is this process. */
export async function startCapsem(url: string): Promise<Capsem> {
  const [ours, theirs] = native().socketPair("seqpacket");
  const host = spawn(
    process.execPath,
    [join(dist, "bench-tool-host.cjs"), join(dist, "bench-tool-owner.cjs"), url],
    {
      stdio: ["pipe", "pipe", "inherit", theirs],
      env: { PATH: process.env.PATH ?? "" },
    },
  );
  native().closeDescriptor(theirs);
  const exited = new Promise<void>((done) => host.once("exit", () => done()));
  const stop = async () => {
    host.stdin?.end();
    await within(exited, START_TIMEOUT_MS).catch(() => host.kill("SIGKILL"));
    await exited;
    native().closeDescriptor(ours);
  };
  try {
    const mux = await within(laneOf(host, ours), START_TIMEOUT_MS, () => new Error("no lane came"));
    return { contenders: await contendersOf(mux, host.pid ?? 0), stop };
  } catch (thrown) {
    await stop();
    throw thrown;
  }
}

/** The guest's end of the traffic lane, as its relay has it, and the words of its owner. */
async function laneOf(host: ChildProcess, grants: number): Promise<Mux> {
  const opened: Deferred<{ marker: string; generation: number }> = defer();
  const ready: Deferred<void> = defer();
  host.once("exit", (code) => {
    for (const each of [opened, ready]) each.reject(new Error(`the service ended with ${code}`));
  });
  if (host.stdout === null) throw new Error("the service says nothing");
  onLines(host.stdout, (line) => {
    const said = JSON.parse(line) as { traffic?: { marker: string; generation: number }; ready?: object };
    if (said.traffic !== undefined) opened.resolve(said.traffic);
    if (said.ready !== undefined) ready.resolve();
  });
  await ready.promise;
  const { fds } = await native().receiveDescriptorsLater(grants, 64);
  const [fd] = fds;
  if (fd === undefined) throw new Error("no lane came");
  const socket = new Socket({ fd, readable: true, writable: true });
  const mux: Deferred<Mux> = defer();
  const lane = createGuestDataLane({
    transport: muxTransport(socket),
    onOpen: (stream) => stream.reset("refused"),
    onGeneration: (each) => mux.resolve(each),
    onFailure: (failure) => mux.reject(failure),
  });
  pump(socket, lane);
  const { marker, generation } = await opened.promise;
  lane.expect(Buffer.from(marker, "hex"), generation);
  return mux.promise;
}

/** One client of the relay's: lines of the thin client are frames by then. */
async function framedLink(mux: Mux): Promise<Link> {
  const stream = mux.open(PORTS.traffic.number, "");
  await stream.write(encodeMetaLine("bench"));
  const waiting = new Map<number, { resolve: (answer: unknown) => void; reject: (cause: unknown) => void }>();
  const reader = new McpFrameReader();
  const read = async () => {
    for (let chunk = await stream.read(); chunk !== null; chunk = await stream.read()) {
      reader.push(chunk, ({ text }) => {
        const answer = JSON.parse(text) as { id?: number };
        const call = waiting.get(answer.id ?? 0);
        waiting.delete(answer.id ?? 0);
        call?.resolve(answer);
      });
    }
  };
  read()
    .then(
      () => new Error("the lane ended"),
      (thrown: unknown) => thrown,
    )
    .then((cause) => {
      for (const { reject } of waiting.values()) reject(cause);
    });
  let id = 0;
  let frame = -1;
  const send = async (message: object, isNotification = false) => {
    if (!isNotification) frame += 2;
    const head = { streamId: isNotification ? 0 : frame, processName: "bench" };
    for (const part of encodeMcpMessage(head, JSON.stringify({ jsonrpc: "2.0", ...message })))
      await stream.write(part);
  };
  return {
    async request(method, params) {
      id += 1;
      const own = id;
      const answered = new Promise((resolve, reject) => waiting.set(own, { resolve, reject }));
      await send({ id: own, method, params });
      return resultOf(await answered);
    },
    notify: (method) => send({ method }, true),
  };
}

async function contendersOf(mux: Mux, hostPid: number): Promise<Contender[]> {
  const link = await framedLink(mux);
  await shakeHands(link);
  const call = async (name: string, args: object) =>
    textOf(await link.request("tools/call", { name, arguments: args }));
  await call("bench__echo", { message: "ready" });
  await call("local__echo", { text: "ready" });
  const pids = workersOf(hostPid);
  const stop = async () => undefined;
  return [
    {
      ...{ name: "capsem, guest → HTTP", isCounted: true, pids, stop },
      call: (tool, args) => call(`bench__${tool}`, args),
    },
    {
      ...{ name: "capsem, guest → builtin", isCounted: false, pids: [], stop },
      async call(tool, args) {
        if (tool !== "echo") throw new Error(`it has no tool "${tool}"`);
        return call("local__echo", { text: (args as { message: string }).message });
      },
    },
  ];
}

/** The service is not among them: it is there once, whatever calls tools. */
function workersOf(hostPid: number): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const isOwn = new RegExp(`\\) \\S ${hostPid} `).test(readFileSync(`/proc/${pid}/stat`, "utf8"));
        const words = readFileSync(`/proc/${pid}/cmdline`, "utf8");
        return isOwn && WORKERS.some((kind) => words.includes(`/${kind}.cjs`));
      } catch {
        return false;
      }
    });
}
