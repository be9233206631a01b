import type { VmReason } from "@capsem/api";

/** Where a fake owner's life can go wrong. */
export type FakePoint = "start" | "ready" | "claim" | "stop" | "ping";

/** What a fake owner does, read from a JSON file when it starts. */
export interface FakeScript {
  /** Exits without a word. */
  readonly crash?: FakePoint;
  /** Throws where nobody catches. */
  readonly uncaught?: FakePoint;
  /** Never goes on. */
  readonly hang?: FakePoint;
  /** Says why and ends. */
  readonly gone?: { readonly at: FakePoint; readonly reason: VmReason };
  /** Which kinds of owners the faults above concern; all when absent. */
  readonly only?: readonly ("fork" | "cold" | "golden" | "pool")[];
  /** The hypervisor has no parent-death signal. */
  readonly hypervisorOutlives?: boolean;
  /** This line on its stderr, as fast as that takes it, from when it is ready. */
  readonly flood?: string;
  /** A program in its guest calls a tool, once it is ready. */
  readonly opensTraffic?: boolean;
  /** How long until it is ready. */
  readonly readyDelayMs?: number;
}
