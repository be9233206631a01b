import { closeSync, openSync, promises } from "node:fs";
import type { Act, Native } from "@capsem/native";
import type { ProbeName } from "./profile.ts";

/** What a probe needs of the world. */
export interface ProbeGround {
  readonly native: Pick<Native, "attempt">;
  /** Exists, is readable for everyone, and is granted to no process of ours. */
  readonly foreignFile: string;
  /** Another process, which lives as long as the probes run: the parent. */
  readonly otherPid: number;
}

/**
 * Tries a forbidden act and says how it ended: the error's code, or "" when it was done. The bare calls are made with
 * arguments that the kernel refuses for a reason of its own (see confinement.cc), so that nothing happens where no
 * filter stands, and "EFAULT" or "EBADF" mean that the kernel went to look.
 */
export type Probe = (ground: ProbeGround) => string | Promise<string>;

export const PROBE_OF: Readonly<Record<ProbeName, Probe>> = {
  "open a foreign file": ({ foreignFile }) => codeOf(() => closeSync(openSync(foreignFile, "r"))),
  "open a foreign file on a pool thread": async ({ foreignFile }) => {
    try {
      await (await promises.open(foreignFile, "r")).close();
      return "";
    } catch (thrown) {
      return codeIn(thrown);
    }
  },
  "make an internet socket": attempt("socket_inet"),
  "make a Unix socket": attempt("socket_unix"),
  "make a netlink socket": attempt("socket_netlink"),
  "connect a socket": attempt("connect"),
  "connect a socket by sending": attempt("fast_open"),
  "bind a socket": attempt("bind"),
  "signal another process": ({ otherPid }) => codeOf(() => process.kill(otherPid, 0)),
  "start a process": attempt("fork"),
  "execute a program": attempt("execve"),
  "trace a process": attempt("ptrace"),
  "read another process's memory": attempt("process_vm_readv"),
  "enter a namespace": attempt("setns"),
  "make a namespace": attempt("unshare"),
  mount: attempt("mount"),
  "make an io_uring": attempt("io_uring_setup"),
  "take another process's descriptor": attempt("pidfd_getfd"),
};

/** A system without the call cannot be made to do it either. */
const DENIALS: readonly string[] = ["EPERM", "EACCES", "ENOSYS"];

export function isDenied(code: string): boolean {
  return DENIALS.includes(code);
}

function attempt(act: Act): Probe {
  return ({ native }) => native.attempt(act);
}

function codeOf(act: () => unknown): string {
  try {
    act();
    return "";
  } catch (thrown) {
    return codeIn(thrown);
  }
}

function codeIn(thrown: unknown): string {
  return thrown instanceof Error && "code" in thrown ? String(thrown.code) : "EUNKNOWN";
}
