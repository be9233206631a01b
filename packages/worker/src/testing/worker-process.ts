// A built worker, started and sealed as the service starts it, with a service and neighbours of the test's.
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { WorkerGrant, WorkerPlan } from "@capsem/api";
import { NODE_ENVIRONMENT, nodeReadPaths } from "@capsem/jail";
import { builtPath, type Launch, launchWords, native } from "@capsem/native";
import { createPeer, type Handler, type Peer } from "@capsem/rpc";

export type End = { readonly code: number | null; readonly signal: string | null };
/** What it says of itself when it is ready. */
export type Ready = { readonly unconfined: string[]; readonly notes: string[] };

export const SERVICE_FD = 3;
export const GRANTS_FD = 4;
/** The first of those that a test lends besides. */
export const LENT_FD = 5;

/** What its service does on the channel. */
export interface Served {
  readonly peer: { close(): void };
  readonly said: Promise<Ready>;
}

export interface WorkerOptions {
  readonly words: { readonly file: string; readonly args: readonly string[] };
  readonly plan: WorkerPlan;
  /** Instead of the plan. */
  readonly input?: string | undefined;
  /** Descriptors that it gets from `LENT_FD` on. */
  readonly lent?: readonly number[];
}

export interface WorkerProcess<S extends Served> {
  readonly child: ChildProcess;
  readonly pid: number;
  readonly served: S;
  readonly ready: Promise<Ready>;
  readonly exited: Promise<End>;
  log(): string;
  /** Sends whatever as a grant; the descriptor is given away. */
  grantRaw(text: string, fd: number): void;
  /** Our end of a new channel, the other one is granted. */
  grant(grant: WorkerGrant): Socket;
  /** Ends its channel to the service, and waits for it. */
  end(): Promise<End>;
  kill(): void;
}

export function builtWorker(name: string): string {
  const bundle = builtPath(`${name}.cjs`);
  if (!existsSync(bundle)) throw new Error(`${name} is not built: node tools/build.mjs ${name}`);
  return bundle;
}

/** What Node and the program read. */
export function grantedPaths(bundle: string) {
  return nodeReadPaths(process.execPath, [bundle, builtPath("native.node")]);
}

/** As the service has it, but for what a test says. */
export function confinedWords(bundle: string, more: Partial<Launch> = {}) {
  return launchWords({
    ...{ parentPid: process.pid, command: process.execPath, args: [bundle] },
    grants: grantedPaths(bundle),
    ...{ keepFds: [SERVICE_FD, GRANTS_FD], openFilesMax: 1_024, landlock: "require", netNamespace: "try" },
    env: { ...NODE_ENVIRONMENT },
    ...(process.getuid?.() === 0 ? { asRoot: true } : {}),
    ...more,
  });
}

/** A service that hears that it is ready, and serves `handlers`. */
export function serveReady(
  duplex: Duplex,
  handlers: Readonly<Record<string, Handler>> = {},
): Served & { readonly peer: Peer } {
  let tell: (said: Ready) => void = () => undefined;
  const said = new Promise<Ready>((resolve) => {
    tell = resolve;
  });
  const ready: Handler = async (params) => {
    tell(params as Ready);
    return {};
  };
  return {
    said,
    peer: createPeer({ role: "host", duplex, handlers: { "worker.ready": ready, ...handlers } }),
  };
}

export function startWorker<S extends Served>(
  { words, plan, input, lent = [] }: WorkerOptions,
  serve: (duplex: Duplex) => S,
): WorkerProcess<S> {
  const [ours, theirs] = native().socketPair("seqpacket");
  const child = spawn(words.file, words.args, {
    stdio: ["pipe", "ignore", "pipe", "pipe", theirs, ...lent],
    env: { PATH: process.env.PATH ?? "" },
    cwd: "/",
  });
  native().closeDescriptor(theirs);
  let log = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    log += chunk.toString();
  });
  const exited = new Promise<End>((resolve) => {
    child.on("close", (code, signal) => resolve({ code, signal }));
  }).finally(() => native().closeDescriptor(ours));
  const served = serve(child.stdio[SERVICE_FD] as Duplex);
  child.stdin?.on("error", () => undefined);
  child.stdin?.end(input ?? `${JSON.stringify(plan)}\n`);
  const lost = exited.then(({ code, signal }) => {
    throw new Error(`it ended with ${signal ?? code} before it was ready: ${log}`);
  });
  const ready = Promise.race([served.said, lost]);
  // Not every test waits for it.
  for (const each of [lost, ready]) each.catch(() => undefined);
  const grantRaw = (text: string, fd: number) => {
    native().sendDescriptors(ours, Buffer.from(text), [fd]);
    native().closeDescriptor(fd);
  };
  return {
    ...{ child, pid: child.pid ?? 0, served, ready, exited, grantRaw },
    log: () => log,
    grant(grant) {
      const [near, far] = native().socketPair("stream");
      grantRaw(JSON.stringify(grant), far);
      return new Socket({ fd: near, readable: true, writable: true });
    },
    end() {
      served.peer.close();
      return exited;
    },
    kill: () => void child.kill("SIGKILL"),
  };
}
