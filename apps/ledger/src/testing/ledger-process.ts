// The built ledger, started as the service starts it; for tests and benchmarks.
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import type { Duplex } from "node:stream";
import type { LedgerMethod, LedgerParams, LedgerResult, LedgerRole } from "@capsem/api";
import { NODE_ENVIRONMENT, nodeReadPaths } from "@capsem/jail";
import { builtPath, launchWords } from "@capsem/native";
import { type CallOptions, createPeer, type Peer } from "@capsem/rpc";

export interface LedgerProcessOptions {
  readonly folder: string;
  readonly bytesMax?: number;
  readonly channels?: readonly { readonly role: LedgerRole; readonly producer: string }[];
  /** Without the launcher, and without what it does. */
  readonly unconfined?: boolean;
  /** As `unconfined` by default. */
  readonly allowUnconfined?: boolean;
  /** Instead of the plan. */
  readonly input?: string;
}

export interface LedgerProcess {
  readonly child: ChildProcess;
  readonly pid: number;
  readonly peers: readonly Peer[];
  /** What it said on each channel when it was ready. */
  readonly ready: Promise<readonly { unconfined: string[]; notes: string[] }[]>;
  readonly exited: Promise<{ code: number | null; signal: string | null }>;
  /** On the first channel of the role. */
  call<R extends LedgerRole, M extends LedgerMethod<R> & string>(
    role: R,
    method: M,
    params: LedgerParams<R, M>,
    options?: CallOptions,
  ): Promise<LedgerResult<R, M>>;
  open(role: LedgerRole, method: string, params: unknown): ReturnType<Peer["open"]>;
  log(): string;
  /** Ends its channels and waits for it. */
  end(): Promise<{ code: number | null; signal: string | null }>;
}

const MIB = 1024 * 1024;
const ROLES = ["producer", "reader", "maintainer"] as const;

/** As the service has it. */
export function confinedWords(folder: string, channels: readonly number[], parentPid: number) {
  const bundle = builtPath("ledger.cjs");
  return launchWords({
    ...{ parentPid, command: process.execPath, args: [bundle] },
    grants: nodeReadPaths(process.execPath, [bundle, builtPath("native.node")]),
    ...{ trees: [folder], keepFds: channels, openFilesMax: 1_024 },
    ...{ landlock: "require", netNamespace: "try", env: NODE_ENVIRONMENT },
    ...(process.getuid?.() === 0 ? { asRoot: true } : {}),
  });
}

export function startLedger(options: LedgerProcessOptions): LedgerProcess {
  const { folder, bytesMax = 1024 * MIB, unconfined = false } = options;
  const channels = options.channels ?? ROLES.map((role) => ({ role, producer: "service" }));
  mkdirSync(folder, { recursive: true });
  const bundle = builtPath("ledger.cjs");
  if (!existsSync(bundle)) throw new Error("the ledger is not built: node tools/build.mjs ledger");
  const fds = channels.map((_, index) => 3 + index);
  const words = unconfined
    ? { file: process.execPath, args: [bundle] }
    : launchWords({
        ...{ parentPid: process.pid, command: process.execPath, args: [bundle] },
        grants: nodeReadPaths(process.execPath, [bundle, builtPath("native.node")]),
        ...{ trees: [folder], keepFds: fds, openFilesMax: 1_024, landlock: "require", netNamespace: "try" },
        env: { ...NODE_ENVIRONMENT },
        ...(process.getuid?.() === 0 ? { asRoot: true } : {}),
      });
  const child = spawn(words.file, words.args, {
    stdio: ["pipe", "ignore", "pipe", ...channels.map(() => "pipe" as const)],
    env: { PATH: process.env.PATH ?? "" },
    cwd: "/",
  });
  let log = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    log += chunk.toString();
  });
  const exited = new Promise<{ code: number | null; signal: string | null }>((resolve) => {
    child.on("close", (code, signal) => resolve({ code, signal }));
  });
  const said: Promise<{ unconfined: string[]; notes: string[] }>[] = [];
  const peers = channels.map((_, index) => {
    const duplex = child.stdio[3 + index] as Duplex;
    duplex.on("error", () => undefined);
    let tell: (params: { unconfined: string[]; notes: string[] }) => void = () => undefined;
    said.push(
      new Promise((resolve) => {
        tell = resolve;
      }),
    );
    const handlers = {
      "ledger.ready": async (params: unknown) => {
        tell(params as { unconfined: string[]; notes: string[] });
        return {};
      },
    };
    return createPeer({ role: "host", duplex, handlers });
  });
  child.stdin?.on("error", () => undefined);
  const plan = {
    folder,
    channels: channels.map((channel, index) => ({ ...channel, fd: 3 + index })),
    vm_bytes_max: bytesMax,
    allow_unconfined: options.allowUnconfined ?? unconfined,
  };
  child.stdin?.end(options.input ?? `${JSON.stringify(plan)}\n`);
  const peerOf = (role: LedgerRole): Peer => {
    const found = peers[channels.findIndex((channel) => channel.role === role)];
    if (found === undefined) throw new Error(`no channel is a ${role}'s`);
    return found;
  };
  const lost = exited.then(({ code, signal }) => {
    throw new Error(`the ledger ended with ${signal ?? code} before it was ready: ${log}`);
  });
  const ready = Promise.race([Promise.all(said), lost]);
  // Not every test waits for it.
  for (const each of [lost, ready]) each.catch(() => undefined);
  return {
    child,
    pid: child.pid ?? 0,
    peers,
    ready,
    exited,
    call: async (role, method, params, callOptions) =>
      (await peerOf(role).call(method, params, { timeoutMs: 60_000, ...callOptions })) as never,
    open: (role, method, params) => peerOf(role).open(method, params, { timeoutMs: 60_000 }),
    log: () => log,
    end: () => {
      for (const peer of peers) peer.close();
      return exited;
    },
  };
}
