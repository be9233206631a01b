import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { availableParallelism, freemem } from "node:os";
import type { Duplex, Readable, Writable } from "node:stream";
import { Bug, messageOf } from "@capsem/base";
import type { OwnerChild, OwnerExit, Powers, Processes } from "./powers.ts";

/** The machine's own powers, Linux. `ownerPath` is the owner's bundle, run by our own Node. */
export function nodePowers(ownerPath: string): Powers {
  return {
    uid: process.getuid?.() ?? -1,
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
    processes: linuxProcesses(),
    startOwner: (descriptors) => startOwner(ownerPath, descriptors),
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
    privateBytes(pid) {
      const [, resident, shared] = (readText(`/proc/${pid}/statm`) ?? "").split(" ").map(Number);
      return resident === undefined || shared === undefined ? 0 : (resident - shared) * PAGE_BYTES;
    },
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

/** The owner inherits nothing but its plan's descriptors and a fixed environment. */
export function startOwner(
  ownerPath: string,
  descriptors: readonly number[],
  env: Readonly<Record<string, string>> = {},
): OwnerChild {
  const child = spawn(process.execPath, [ownerPath], {
    stdio: ["pipe", "ignore", "pipe", "pipe", ...descriptors],
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
  const rpc = child.stdio[3];
  if (stdin === null || stderr === null || rpc == null) throw new Bug("a child has no pipes");
  return {
    pid: child.pid ?? null,
    stdin: stdin satisfies Writable,
    stderr: stderr satisfies Readable,
    // A further "pipe" of Node is one end of a socket pair.
    rpc: rpc as Duplex,
    exited,
    kill: () => {
      child.kill("SIGKILL");
    },
  };
}
