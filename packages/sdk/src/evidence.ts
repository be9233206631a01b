import type {
  HistoryEntry,
  HistoryPage,
  SecurityEntry,
  SecurityPage,
  TimelineEntry,
  TimelinePage,
  VmStats,
  VmStatsDetail,
} from "@capsem/api";
import { type Listing, listing } from "./listing.ts";
import { type CallOptions, type OperationInput, operation } from "./operation.ts";
import type { Transport } from "./transport.ts";

type Query<N extends "timeline" | "history" | "securityEvents"> = NonNullable<OperationInput<N>["query"]>;
export type TimelineQuery = Query<"timeline">;
export type HistoryQuery = Query<"history">;
export type SecurityQuery = Query<"securityEvents">;

/** What is recorded of a VM: also of one that is gone, and of the machine itself by the id `host`. */
export interface VmEvidence {
  /** What was done in and to it, by time; the oldest first, unless `newest`. */
  timeline(query?: TimelineQuery, options?: CallOptions): Listing<TimelineEntry, TimelinePage>;
  /** Its commands, the newest first. */
  history(query?: HistoryQuery, options?: CallOptions): Listing<HistoryEntry, HistoryPage>;
  stats(options?: CallOptions): Promise<VmStats>;
  statsDetail(options?: CallOptions): Promise<VmStatsDetail>;
  /** Decisions, the newest first, each with the event that was judged and every rule that matched. */
  securityEvents(query?: SecurityQuery, options?: CallOptions): Listing<SecurityEntry, SecurityPage>;
}

export function vmEvidence(transport: Transport, id: string): VmEvidence {
  const params = { id };
  return {
    timeline: (query = {}, options) =>
      listing<TimelineEntry, TimelinePage, string>({
        limit: query.limit,
        first: query.cursor,
        ask: (cursor, limit) =>
          operation(transport, "timeline")({ params, query: { ...query, cursor, limit } }, options),
        entriesOf: ({ entries }) => entries,
        nextOf: ({ next }) => next,
      }),
    history: (query = {}, options) =>
      listing<HistoryEntry, HistoryPage, number>({
        limit: query.limit,
        first: query.offset,
        ask: (offset, limit) =>
          operation(transport, "history")({ params, query: { ...query, offset, limit } }, options),
        entriesOf: ({ entries }) => entries,
        nextOf: ({ entries, total }, offset = 0) => {
          const next = offset + entries.length;
          return entries.length === 0 || next >= total ? null : next;
        },
      }),
    stats: (options) => operation(transport, "vmStats")({ params }, options),
    statsDetail: (options) => operation(transport, "vmStatsDetail")({ params }, options),
    securityEvents: (query = {}, options) =>
      listing<SecurityEntry, SecurityPage, string>({
        limit: query.limit,
        first: query.cursor,
        ask: (cursor, limit) =>
          operation(transport, "securityEvents")({ params, query: { ...query, cursor, limit } }, options),
        entriesOf: ({ events }) => events,
        nextOf: ({ next }) => next,
      }),
  };
}
