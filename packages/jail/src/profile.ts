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

/**
 * The opposite, for a program that is not ours and whose calls we cannot all know: what is not listed is allowed. In
 * force from its first instruction, before which there is nothing to probe and no process to name but itself.
 */
export interface Denials {
  readonly name: string;
  /** Denied with whatever arguments. */
  readonly groups: readonly Group[];
  /** Denied but in these cases. */
  readonly onlyWhen: readonly Rule[];
  /** Denied in these cases. */
  readonly neverWhen: readonly Rule[];
  readonly refusals: readonly Refusal[];
}

/** Calls with whatever arguments, and why they are needed and harmless; in denials, what they would be good for. */
export interface Group {
  readonly why: string;
  readonly calls: readonly Syscall[];
}

/** A call that is allowed (in `neverWhen`: denied) when all tests of one of its `cases` hold. */
export interface Rule {
  readonly why: string;
  readonly call: Syscall;
  readonly cases: readonly (readonly ArgumentTest[])[];
}

type ArgumentIndex = 0 | 1 | 2 | 3 | 4 | 5;

/**
 * Holds when the argument's lower 32 bits, masked, equal the value. The upper half is not looked at, so a test is
 * sound only for arguments that the kernel itself reads as 32 bits: flags, commands, pids, descriptors. No filter
 * can look behind a pointer: paths are Landlock's to judge.
 */
export interface EqualTest {
  readonly argument: ArgumentIndex;
  /** All bits by default. */
  readonly mask?: number;
  readonly equals: number | Subject;
}

/** The same half, as a number without a sign: a negative descriptor is a large one, which the kernel refuses. */
export interface AtLeastTest {
  readonly argument: ArgumentIndex;
  readonly atLeast: number;
}

/** No pointer: all 64 bits are zero. */
export interface NullTest {
  readonly argument: ArgumentIndex;
  readonly isNull: true;
}

export type ArgumentTest = EqualTest | AtLeastTest | NullTest;

/**
 * The pids of this process and of its hypervisor; the descriptors of the socket that controls the hypervisor, and of
 * the one on which a worker is granted channels.
 */
export type Subject = "self" | "hypervisor" | "control socket" | "grants socket";

/**
 * MSG_FASTOPEN sends by connecting first: on a TCP socket that is not connected it is `connect` by another name, and
 * `shutdown` makes such a socket of a listener.
 */
export const NO_FAST_OPEN = { mask: 0x2000_0000, equals: 0 } as const;

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
  "connect a socket by sending",
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
