export { checkEnv } from "./env-table.ts";
export { apiFailure, ERROR_KINDS, ERRORS, type ErrorKind, isErrorKind, toApiFailure } from "./error-table.ts";
export { type ServiceEvent, serviceEvent } from "./event-schema.ts";
export { decodeFacts, encodeFacts, type FactsMessage, type FactToSend } from "./fact-message.ts";
export { type FileInfo, fileInfo } from "./file-routes.ts";
export { type Fault, faultLine, type Parsed, parseOrFaults } from "./issue-text.ts";
export { JOB_LIMITS } from "./job-limits.ts";
export {
  LEDGER_METHODS,
  LEDGER_SERVICE_METHODS,
  type LedgerHead,
  type LedgerMethod,
  type LedgerParams,
  type LedgerPlan,
  type LedgerResult,
  type LedgerRole,
  ledgerPlan,
  signedHeadText,
} from "./ledger-contract.ts";
export * from "./ledger-schema.ts";
export {
  type ColumnKind,
  type ColumnType,
  ENDS_IN,
  HOST_LEDGER,
  LEDGER_TABLE_NAMES,
  LEDGER_TABLES,
  LEDGER_VERSION,
  type LedgerRow,
  type LedgerTable,
  type LedgerTableRow,
  OUTCOMES,
  type Outcome,
  shownRequester,
} from "./ledger-table.ts";
export { matchRoute, type RouteMatch } from "./match-route.ts";
export * from "./mcp-schema.ts";
export {
  OWNER_METHODS,
  type OwnerJobEnd,
  type OwnerMethod,
  type OwnerParams,
  type OwnerResult,
  SERVICE_METHODS,
  type SpawnPlan,
  spawnPlan,
  type UpEnd,
  upEnd,
} from "./owner-contract.ts";
export * from "./policy-schema.ts";
export type { Absent, BodyKind, Route } from "./route.ts";
export { ROUTES, type RouteName } from "./route-table.ts";
export * from "./service-schema.ts";
export { TOOL_LIMITS } from "./tool-limits.ts";
export type { Tool, ToolAnnotations, ToolRequest } from "./tool-row.ts";
export { TOOLS, type ToolName, toolOf } from "./tool-table.ts";
export { type FileWindowResult, fileWindow } from "./tool-work.ts";
export * from "./vm-schema.ts";
export * from "./worker-contract.ts";
