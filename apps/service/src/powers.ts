import type { Duplex, Readable, Writable } from "node:stream";
import type { LedgerPlan, SpawnPlan, WorkerPlan } from "@capsem/api";

/** What the service takes from the machine. Made in powers-node.ts, replaced in tests. */
export interface Powers {
  readonly uid: number;
  readonly pid: number;
  readonly hostCpus: number;
  nowMs(): number;
  monotonicMs(): number;
  random(bytes: number): Uint8Array;
  availableMemoryBytes(): number;
  freeDiskBytes(folder: string): Promise<number>;
  /** Locks the open file for this process alone, until its descriptor is closed. False: another process has it. */
  lockFile(fd: number): boolean;
  readonly processes: Processes;
  /** `descriptors` become 4 and up, in the order that the plan's numbers say. */
  startOwner(plan: SpawnPlan, descriptors: readonly number[]): OwnerChild;
  /** The plan's channels become 3 and up, in its order. */
  startLedger(plan: LedgerPlan): LedgerChild;
  /** The rpc socket becomes 3, `descriptors` 4 and up, in the order that the plan's numbers say. */
  startWorker(plan: WorkerPlan, descriptors: readonly number[]): OwnerChild;
  readonly pairs: Pairs;
  /** Every address of a name, by the machine's own resolver. */
  lookup(host: string): Promise<readonly string[]>;
  /** What `startOwner` does to confine an owner, for status and doctor. */
  confinement(): Confinement;
}

/** Socket pairs between processes of ours. Descriptors are close-on-exec, and the caller's to close. */
export interface Pairs {
  socketPair(type: "stream" | "seqpacket"): [number, number];
  /** A copy of `fd` rides on the message. Both stay open until it resolves. Waits for a peer that is slow to read. */
  send(socket: number, message: Uint8Array, fd: number, timeoutMs: number): Promise<void>;
  close(fd: number): void;
}

export interface Confinement {
  readonly isEnforced: boolean;
  /** By what it is enforced, or why it is not. */
  readonly reason: string;
}

export interface Processes {
  /** Identifies one life of a pid: its start time and the boot. Null when no such process lives (a zombie is dead). */
  birth(pid: number): string | null;
  /** Memory of this process, what it shares included; 0 when it cannot be read. */
  residentBytes(pid: number): number;
  /** Memory that only this process has; 0 when it cannot be read. */
  privateBytes(pid: number): number;
  /** False when the process is gone. */
  kill(pid: number, signal: "SIGKILL" | "SIGTERM"): boolean;
}

/** A started owner program. Its descriptors are stdin, none, stderr, the rpc socket, then what was given. */
export interface OwnerChild {
  readonly pid: number | null;
  readonly stdin: Writable;
  readonly stderr: Readable;
  readonly rpc: Duplex;
  /** Resolves when the process has been reaped, or could not be started; never rejects. */
  readonly exited: Promise<OwnerExit>;
  kill(): void;
}

export interface OwnerExit {
  readonly code: number | null;
  readonly signal: string | null;
  readonly message: string | null;
}

/** A started ledger program. Its descriptors are stdin, none, stderr, then a socket for each channel of its plan. */
export interface LedgerChild extends Omit<OwnerChild, "rpc"> {
  readonly channels: readonly Duplex[];
}
