export type { ByteInput } from "./byte-source.ts";
export { type Client, createClient } from "./client.ts";
export type { ClientNameOptions } from "./client-name.ts";
export type { CreatedVm } from "./created-vm.ts";
export { CapsemError, type CapsemErrorOptions, type ErrorFacts, type ErrorObject } from "./error.ts";
export type { ClientEvent } from "./events.ts";
export type { HistoryQuery, SecurityQuery, TimelineQuery, VmEvidence } from "./evidence.ts";
export type { FileWindow, VmFiles } from "./files.ts";
export type { ReadFileOptions, VmFs, WriteFileOptions } from "./fs.ts";
export { Dirent, Stats } from "./fs-stats.ts";
export { type GatewayOptions, gatewayTransport } from "./gateway.ts";
export type { Held, HoldEnd } from "./hold.ts";
export type { Job, JobChunk, JobExit, StreamRequest } from "./job.ts";
export type { JobLine, JobOutput } from "./job-text.ts";
export type { LedgerExport, LedgerLine, Ledgers } from "./ledgers.ts";
export type { Listing } from "./listing.ts";
export type { ApproveRequest, Mcp, McpDefault, McpPermission } from "./mcp.ts";
export {
  type CallOptions,
  type Operation,
  type OperationInput,
  type OperationResult,
  operation,
} from "./operation.ts";
export type {
  Asks,
  Corp,
  Credentials,
  EvaluateRequest,
  ReplayRequest,
  Rules,
  SettingEdit,
  Settings,
} from "./policy.ts";
export { sh } from "./shell-words.ts";
export type { Token } from "./token.ts";
export type {
  ByteSource,
  RequestOptions,
  SocketOptions,
  Transport,
  TransportAnswer,
  TransportSocket,
} from "./transport.ts";
export type { VmTrees } from "./trees.ts";
export type { Vm } from "./vm.ts";
export type { WebSocketClass, WebSocketLike } from "./web-socket.ts";
