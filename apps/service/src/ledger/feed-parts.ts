import type { LedgerHead } from "@capsem/api";
import type { AnyRow } from "../boundary/parts.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { ChainFollower } from "./chain-follower.ts";
import type { LedgerLink } from "./ledger-link.ts";
import type { Weight } from "./row-queue.ts";

export type FeedState = "opening" | "ok" | "full" | "failing" | "broken";

/** Why a ledger is full that is not at its limit. */
export const NO_ROOM = "the disk has no room; what frees some still works: stop, delete, purge, export";

/** What the way of one ledger's rows needs of everything else. */
export interface FeedParts {
  /** Of the process that lives now. */
  readonly link: () => LedgerLink | null;
  /** How long there has been none, and how long an act may wait for one now. */
  readonly away: () => { readonly ms: number; readonly waitMs: number; readonly reason: string | null };
  readonly newGeneration: () => string;
  /** Null: there was none before. Throws when it cannot be trusted. */
  readonly checkpoint: (ledger: string) => Promise<LedgerHead | null>;
  /** Whether it has files, asked before its first opening. */
  readonly hasFiles: (ledger: string) => boolean;
  readonly bytesMax: (ledger: string) => number;
  /** Whether the disk is why something failed that names no reason. */
  readonly isDiskFull: () => boolean;
  readonly onHead: (ledger: string, head: LedgerHead) => void;
  /** Before its files are closed. */
  readonly keepHead: (ledger: string) => Promise<void>;
  readonly onClosed: (ledger: string) => void;
  /** What the service knows of its chain, which outlives this. */
  readonly chain: ChainFollower;
  /** What was taken, and cannot be stored there any more. */
  readonly handOn: (ledger: string, rows: readonly AnyRow[]) => void;
  readonly monotonicMs: () => number;
  readonly log: ServiceLog;
  readonly weight: Weight;
}
