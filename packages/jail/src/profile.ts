import type { Syscall } from "./syscall-table.ts";

/**
 * What one kind of process may ask of the kernel once it is sealed, as data. Everything that is not listed fails with
 * EPERM; a call of another machine (32-bit, x32) ends the process.
 */
export interface Profile {
  /** The process, as in "Cannot confine the owner". */
  readonly name: string;
  readonly groups: readonly Group[];
  readonly rules: readonly Rule[];
  /** Calls that fail with another errno than EPERM, since a caller knows how to go on after that one. */
  readonly refusals: readonly Refusal[];
  /** Calls that no code of ours or of Node makes: an attack, so the process ends. In force after the probes. */
  readonly fatal: readonly Syscall[];
  /** What must fail before the process says that it is ready. */
  readonly probes: readonly ProbeName[];
}

/** Calls with whatever arguments, and why they are needed and harmless. */
export interface Group {
  readonly why: string;
  readonly calls: readonly Syscall[];
}

/** A call that is allowed when all tests of one of its `cases` hold. */
export interface Rule {
  readonly why: string;
  readonly call: Syscall;
  readonly cases: readonly (readonly ArgumentTest[])[];
}

/**
 * Holds when the argument's lower 32 bits, masked, equal the value. The upper half is not looked at, so a test is
 * sound only for arguments that the kernel itself reads as 32 bits: flags, commands, pids, descriptors. No filter
 * can look behind a pointer: paths are Landlock's to judge.
 */
export interface ArgumentTest {
  readonly argument: 0 | 1 | 2 | 3 | 4 | 5;
  /** All bits by default. */
  readonly mask?: number;
  readonly equals: number | "self" | "hypervisor";
}

export interface Refusal {
  readonly why: string;
  readonly call: Syscall;
  readonly errno: number;
}

/** Named by what is tried; see probes.ts. */
export const PROBES = [
  "open a foreign file",
  "open a foreign file on a pool thread",
  "make an internet socket",
  "make a Unix socket",
  "make a netlink socket",
  "connect a socket",
  "bind a socket",
  "signal another process",
  "start a process",
  "execute a program",
  "trace a process",
  "read another process's memory",
  "enter a namespace",
  "make a namespace",
  "mount",
  "make an io_uring",
  "take another process's descriptor",
] as const;
export type ProbeName = (typeof PROBES)[number];
