import type { ChildProcess, SpawnOptions, spawn } from "node:child_process";
import { Duplex, type Readable } from "node:stream";
import { assert, defer, Failure, ignore, within } from "@capsem/base";
import { type Accelerator, planCommandLine, type StartKind } from "./command-line.ts";
import { DESCRIPTOR, HYPERVISOR_ENVIRONMENT } from "./device-layout.ts";
import { type VmmFailureKind, vmmFailure } from "./error.ts";
import { EXIT_TIMEOUT_MS, START_TIMEOUT_MS, STDERR_TAIL_BYTES_MAX, STDERR_TIMEOUT_MS } from "./limits.ts";
import { Qmp } from "./qmp.ts";

/**
 * Numbers of the caller's own descriptors. They stay the caller's, which closes them once the start resolved:
 * the lock on a disk lasts until the last copy of its descriptor is closed.
 * `state` must be opened for this VM alone and stand at position 0, because its file position is shared.
 */
export interface HypervisorDescriptors {
  traffic: number;
  /** Both are booted by the cold and golden kinds alone; a fork's are in its memory. */
  kernel: number;
  initrd: number;
  root: number;
  agent: number;
  /** A qcow2, opened for reading and writing. */
  disk?: number;
  /** fork: sealed against writes. golden: writable, of the memory's size or empty. */
  memory?: number;
  /** fork: opened for reading. golden: for writing, empty; it stays open until the golden is saved. */
  state?: number;
}

export interface HypervisorOptions {
  kind: StartKind;
  vmId: string;
  cpus: number;
  memoryMib: number;
  accelerator: Accelerator;
  qemuBinary: string;
  /** A program that confines itself and becomes QEMU under the same process id. */
  launcher: string | null;
  /** What stands between the launcher and QEMU's own path, a closing `--` included. */
  launcherArguments: readonly string[];
  descriptors: HypervisorDescriptors;
  diskCapacityBytes: number;
  spawn: typeof spawn;
  /** Only for saving: sends descriptors over a Unix socket. */
  sendDescriptors?: (socketFd: number, payload: Uint8Array, fds: number[]) => void;
}

export interface HypervisorEnd {
  /** Null: ended by a signal, or not known. */
  exitCode: number | null;
  signal: NodeJS.Signals | null;
  /** Why, when our side gave up on it. */
  failure: Failure<VmmFailureKind> | null;
  /** The last words of its error output, for logs alone. */
  stderrTail: string;
}

type StdioEntry = number | "pipe" | "ignore";

export interface Hypervisor {
  readonly pid: number;
  readonly control: Duplex;
  readonly bulk: Duplex;
  /** The guest's serial console. It must be read: QEMU drops what nobody takes. */
  readonly console: Readable;
  readonly stderr: Readable;
  readonly qmp: Qmp;
  readonly options: HypervisorOptions;
  /** Resolves when QEMU is gone. Never rejects. */
  readonly ended: Promise<HypervisorEnd>;
  /** SIGKILL. May be called at any time and more than once. */
  kill(): void;
}

/**
 * Spawns QEMU and resolves when its control answers; the VM is stopped then, whatever its kind. Next come
 * `restore` (fork), `joinDisk`, `resume`. A start that fails leaves no process behind.
 */
export async function startHypervisor(options: HypervisorOptions): Promise<Hypervisor> {
  checkDescriptors(options);
  const child = spawnQemu(options);
  const failedSpawn = defer<never>();
  ignore(failedSpawn.promise);
  // One that runs may say so too, of each signal that it cannot be sent.
  child.on("error", (cause) => failedSpawn.reject(missing(options, cause)));
  if (child.pid === undefined) return failedSpawn.promise;
  const hypervisor = adopt(child, child.pid, options);
  try {
    await hypervisor.qmp.negotiate(START_TIMEOUT_MS);
  } catch (thrown) {
    hypervisor.kill();
    throw startFailure(thrown, await hypervisor.ended);
  }
  return hypervisor;
}

/** The numbers that QEMU inherits, for a launcher that closes all others. */
export function inheritedDescriptors(options: Pick<HypervisorOptions, "kind" | "descriptors">): number[] {
  return stdioOf(options).flatMap((entry, number) => (number < 3 || entry === "ignore" ? [] : [number]));
}

/** The inherited numbers that QEMU opens once more through /proc, for a launcher that restricts paths. */
export function reopenedDescriptors({ kind, descriptors }: Pick<HypervisorOptions, "kind" | "descriptors">): {
  read: number[];
  write: number[];
} {
  return {
    read: kind === "fork" ? [] : [DESCRIPTOR.kernel, DESCRIPTOR.initrd],
    write: descriptors.memory === undefined ? [] : [DESCRIPTOR.memory],
  };
}

/** QEMU's descriptors by number; an ignored one is not open there. */
function stdioOf({ kind, descriptors }: Pick<HypervisorOptions, "kind" | "descriptors">): StdioEntry[] {
  const entries: StdioEntry[] = ["ignore", "pipe", "pipe"];
  entries[DESCRIPTOR.qmp] = "pipe";
  entries[DESCRIPTOR.control] = "pipe";
  entries[DESCRIPTOR.bulk] = "pipe";
  entries[DESCRIPTOR.traffic] = descriptors.traffic;
  entries[DESCRIPTOR.kernel] = kind === "fork" ? "ignore" : descriptors.kernel;
  entries[DESCRIPTOR.initrd] = kind === "fork" ? "ignore" : descriptors.initrd;
  entries[DESCRIPTOR.root] = descriptors.root;
  entries[DESCRIPTOR.agent] = descriptors.agent;
  entries[DESCRIPTOR.disk] = descriptors.disk ?? "ignore";
  entries[DESCRIPTOR.memory] = descriptors.memory ?? "ignore";
  // A golden is given it at the end, by `saveState`.
  entries[DESCRIPTOR.state] = (kind === "fork" ? descriptors.state : undefined) ?? "ignore";
  return entries;
}

function checkDescriptors({ kind, descriptors, launcher, launcherArguments }: HypervisorOptions): void {
  const saved = descriptors.memory !== undefined && descriptors.state !== undefined;
  assert(kind === "cold" || saved, `a ${kind} start needs memory and state`);
  assert(launcher !== null || launcherArguments.length === 0, "launcher arguments without a launcher");
}

function spawnQemu(options: HypervisorOptions): ChildProcess {
  const { launcher, launcherArguments, qemuBinary } = options;
  const command = [
    ...(launcher === null ? [] : [launcher, ...launcherArguments]),
    qemuBinary,
    ...planCommandLine(options),
  ];
  const spawnOptions: SpawnOptions = {
    stdio: stdioOf(options),
    // A launcher hands on what its own arguments say.
    env: HYPERVISOR_ENVIRONMENT,
    cwd: "/",
  };
  return options.spawn(command[0] ?? qemuBinary, command.slice(1), spawnOptions);
}

function adopt(child: ChildProcess, pid: number, options: HypervisorOptions): Hypervisor {
  const { stdout, stderr } = child;
  assert(stdout !== null && stderr !== null, "QEMU's output must be pipes");
  const qmp = new Qmp(socketOf(child, DESCRIPTOR.qmp));
  const kill = () => {
    // Node does nothing when the process is known to be gone, so that another one's pid is never hit.
    child.kill("SIGKILL");
  };
  return {
    pid,
    control: socketOf(child, DESCRIPTOR.control),
    bulk: socketOf(child, DESCRIPTOR.bulk),
    console: stdout,
    stderr,
    qmp,
    options,
    ended: watchEnd(child, qmp, tailOf(stderr), kill),
    kill,
  };
}

function socketOf(child: ChildProcess, number: number): Duplex {
  const stream = child.stdio[number];
  assert(stream instanceof Duplex, `descriptor ${number} must be a socket`);
  // A lane that breaks ends; its reader sees that. Without a listener the error would end the process.
  stream.on("error", () => stream.destroy());
  return stream;
}

/** The last words, kept from the first byte on beside whoever else reads the stream. */
function tailOf(stream: Readable): () => Promise<string> {
  let tail: Buffer = Buffer.alloc(0);
  stream.on("data", (chunk: Buffer) => {
    tail = Buffer.concat([tail, chunk]).subarray(-STDERR_TAIL_BYTES_MAX);
  });
  const over = new Promise<void>((resolve) => {
    stream.once("close", () => resolve());
  });
  return async () => {
    // A reader that paused the stream keeps its last words; they are not worth more than a moment.
    await within(over, STDERR_TIMEOUT_MS).catch(() => undefined);
    return tail.toString("utf8");
  };
}

/** The end of QMP is the end of QEMU: a process that outlives its control is killed. */
async function watchEnd(
  child: ChildProcess,
  qmp: Qmp,
  tail: () => Promise<string>,
  kill: () => void,
): Promise<HypervisorEnd> {
  // Not "close", which waits for whoever reads the console.
  const exited = new Promise<void>((resolve) => {
    child.once("exit", () => resolve());
  });
  const failure = await Promise.race([qmp.ended, exited.then(() => undefined)]);
  qmp.close();
  if (failure !== undefined) kill();
  try {
    await within(exited, EXIT_TIMEOUT_MS);
  } catch {
    kill();
    await exited;
  }
  const { exitCode, signalCode } = child;
  return { exitCode, signal: signalCode, failure: failure ?? null, stderrTail: await tail() };
}

function missing(options: HypervisorOptions, cause: Error): Failure<VmmFailureKind> {
  const program = options.launcher ?? options.qemuBinary;
  return vmmFailure("hypervisor_missing", `Cannot start the hypervisor: "${program}" cannot be run`, {
    cause,
  });
}

function startFailure(cause: unknown, end: HypervisorEnd): Failure<VmmFailureKind> {
  const detail = end.stderrTail.trim();
  if (cause instanceof Failure && cause.kind !== "hypervisor_exit") {
    return new Failure(cause.kind, cause.message, { cause, detail });
  }
  const how = end.signal === null ? `ended with ${end.exitCode}` : `ended by ${end.signal}`;
  return vmmFailure("hypervisor_exit", `Cannot start the hypervisor: ${how}`, { cause, detail });
}
