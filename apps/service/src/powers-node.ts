import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { lookup } from "node:dns/promises";
import { readFileSync, realpathSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { availableParallelism, freemem } from "node:os";
import { dirname, join } from "node:path";
import type { Duplex, Readable, Writable } from "node:stream";
import { Bug, messageOf } from "@capsem/base";
import { lockFile } from "@capsem/base/lock-file";
import { nodeReadPaths } from "@capsem/jail";
import { builtPath, native } from "@capsem/native";
import { ledgerWords } from "./ledger/ledger-launch.ts";
import { workerWords } from "./mcp/worker-launch.ts";
import { type OwnerProgram, ownerWords } from "./owner/owner-launch.ts";
import type { Confinement, LedgerChild, OwnerChild, OwnerExit, Pairs, Powers, Processes } from "./powers.ts";

/** The machine's own powers, Linux. `ownerPath` is the owner's bundle, run by our own Node; the others are beside it. */
export function nodePowers(
  ownerPath: string,
  ledgerPath: string = join(dirname(ownerPath), "ledger.cjs"),
): Powers {
  const uid = process.getuid?.() ?? -1;
  const nodeBinary = realpathSync(process.execPath);
  const program: OwnerProgram = {
    nodeBinary,
    bundle: ownerPath,
    grants: nodeReadPaths(nodeBinary, [ownerPath, builtPath("native.node")]),
    servicePid: process.pid,
    isRoot: uid === 0,
  };
  const programOf = (bundle: string): OwnerProgram => ({
    ...program,
    bundle,
    grants: nodeReadPaths(nodeBinary, [bundle, builtPath("native.node")]),
  });
  let known: Confinement | null = null;
  // A kernel's Landlock is what it was when it started.
  const confinement = () => {
    known ??= confinementOf(native().landlockAbi());
    return known;
  };
  return {
    uid,
    pid: process.pid,
    hostCpus: availableParallelism(),
    nowMs: () => Date.now(),
    monotonicMs: () => performance.now(),
    random: (bytes) => randomBytes(bytes),
    availableMemoryBytes,
    async freeDiskBytes(folder) {
      const { bavail, bsize } = await statfs(folder);
      return bavail * bsize;
    },
    lockFile,
    processes: linuxProcesses(),
    startOwner: (plan, descriptors) => startOwner(ownerWords(program, plan), descriptors),
    startLedger: (plan) => startLedger(ledgerWords(programOf(ledgerPath), plan), plan.channels.length),
    startWorker: (plan, descriptors) =>
      startOwner(workerWords(programOf(join(dirname(ownerPath), `${plan.kind}.cjs`)), plan), descriptors),
    pairs: nativePairs(),
    lookup: async (host) => (await lookup(host, { all: true })).map(({ address }) => address),
    confinement,
  };
}

function nativePairs(): Pairs {
  return {
    socketPair: (type) => native().socketPair(type),
    send: (socket, message, fd, timeoutMs) =>
      native().sendDescriptorsLater(socket, message, [fd], { timeoutMs }),
    close: (fd) => native().closeDescriptor(fd),
  };
}

export function linuxProcesses(): Processes {
  const bootId = readText("/proc/sys/kernel/random/boot_id")?.trim() ?? "";
  return {
    birth(pid) {
      const stat = readText(`/proc/${pid}/stat`);
      if (stat === null) return null;
      // The name in parentheses may hold anything: fields are counted after its end.
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      const [state] = fields;
      const startTicks = fields[19];
      if (state === "Z" || state === "X" || startTicks === undefined) return null;
      return `${bootId}:${startTicks}`;
    },
    residentBytes: (pid) => memoryOf(pid).resident,
    privateBytes: (pid) => memoryOf(pid).resident - memoryOf(pid).shared,
    kill(pid, signal) {
      try {
        return process.kill(pid, signal);
      } catch (thrown) {
        if (thrown instanceof Error && "code" in thrown && thrown.code === "ESRCH") return false;
        throw thrown;
      }
    },
  };
}

const PAGE_BYTES = 4096;

function memoryOf(pid: number): { resident: number; shared: number } {
  const [, resident = 0, shared = 0] = (readText(`/proc/${pid}/statm`) ?? "").split(" ").map(Number);
  return { resident: resident * PAGE_BYTES, shared: shared * PAGE_BYTES };
}

function availableMemoryBytes(): number {
  const kib = /^MemAvailable:\s+(\d+) kB$/m.exec(readText("/proc/meminfo") ?? "")?.[1];
  return kib === undefined ? freemem() : Number(kib) * 1024;
}

/** Null when there is no such file, or no such process any more. */
function readText(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch (thrown) {
    const code = thrown instanceof Error && "code" in thrown ? thrown.code : "";
    if (code === "ENOENT" || code === "ESRCH") return null;
    throw thrown;
  }
}

/** What an owner will be confined by; each proves it for itself before its VM runs, or does not start. */
function confinementOf(landlockAbi: number): Confinement {
  return landlockAbi > 0
    ? { isEnforced: true, reason: `Landlock (version ${landlockAbi}) and seccomp` }
    : {
        isEnforced: false,
        reason: "this kernel has no Landlock, or it is switched off; VMs start with allow_unconfined alone",
      };
}

/** The owner inherits nothing but its plan's descriptors and a fixed environment. */
export function startOwner(
  words: LaunchWords,
  descriptors: readonly number[],
  env: Readonly<Record<string, string>> = {},
): OwnerChild {
  const { child, base } = startChild(words, ["pipe", ...descriptors], env);
  return { ...base, rpc: channelOf(child, 3) };
}

/** The same, with a socket pair for each channel. */
export function startLedger(
  words: LaunchWords,
  channels: number,
  env: Readonly<Record<string, string>> = {},
): LedgerChild {
  const { child, base } = startChild(words, Array<"pipe">(channels).fill("pipe"), env);
  return { ...base, channels: Array.from({ length: channels }, (_, index) => channelOf(child, 3 + index)) };
}

interface LaunchWords {
  readonly file: string;
  readonly args: readonly string[];
}

function startChild(
  { file, args }: LaunchWords,
  further: readonly ("pipe" | number)[],
  env: Readonly<Record<string, string>>,
): { child: ChildProcess; base: Omit<OwnerChild, "rpc"> } {
  const child = spawn(file, args, {
    stdio: ["pipe", "ignore", "pipe", ...further],
    env: { PATH: process.env.PATH ?? "/usr/sbin:/usr/bin:/sbin:/bin", LANG: "C.UTF-8", ...env },
    cwd: "/",
  });
  const exited = new Promise<OwnerExit>((resolve) => {
    child.on("exit", (code, signal) => resolve({ code, signal, message: null }));
    child.on("error", (error) => {
      if (child.pid === undefined) resolve({ code: null, signal: null, message: messageOf(error) });
    });
  });
  const { stdin, stderr } = child;
  if (stdin === null || stderr === null) throw new Bug("a child has no pipes");
  const base = {
    pid: child.pid ?? null,
    stdin: stdin satisfies Writable,
    stderr: stderr satisfies Readable,
    exited,
    kill: () => {
      child.kill("SIGKILL");
    },
  };
  return { child, base };
}

/** A further "pipe" of Node is one end of a socket pair. */
function channelOf(child: ChildProcess, fd: number): Duplex {
  const channel = child.stdio[fd];
  if (channel == null) throw new Bug("a child has no channel");
  return channel as Duplex;
}
