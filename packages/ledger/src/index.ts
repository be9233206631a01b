export { genesisHead, keyIdOf, LEDGER_PRODUCER, nextHead, type Origin, rowHash } from "./chain.ts";
export { readChainRows } from "./chain-rows.ts";
export { openCheckpointer } from "./checkpointer.ts";
export { type DecisionsQuery, readDecisions } from "./decisions.ts";
export { readDetail } from "./detail.ts";
export { type LedgerFailureKind, ledgerFailure, systemFailure } from "./error.ts";
export { exportLines } from "./export.ts";
export { archiveLedger, hasLedger, removeLedger, syncFolder } from "./files.ts";
export { type HistoryQuery, readHistory } from "./history.ts";
export { LEDGER_LIMITS } from "./limits.ts";
export { listLedgers } from "./list.ts";
export { ledgerPaths } from "./paths.ts";
export { type LedgerReader, ReaderPool } from "./reader.ts";
export { parseRow, type Row } from "./row.ts";
export { runSlices, type Sliced } from "./slices.ts";
export { type Cell, warmSqlite } from "./sqlite.ts";
export { readStats } from "./stats.ts";
export { readTimeline, type TimelineQuery } from "./timeline.ts";
export { goneLedger, unreadableLedger, type VerifyOptions, verifyChain } from "./verify.ts";
export {
  type AppendEnd,
  type AppendRequest,
  LedgerWriter,
  type OpenRequest,
  type Standing,
  type WriterOptions,
} from "./writer.ts";
