export type { ByteInput } from "./byte-source.ts";
export { type Client, createClient } from "./client.ts";
export type { CreatedVm } from "./created-vm.ts";
export { CapsemError, type CapsemErrorOptions, type ErrorObject } from "./error.ts";
export type { ClientEvent } from "./events.ts";
export type { FileWindow, VmFiles } from "./files.ts";
export type { ReadFileOptions, VmFs, WriteFileOptions } from "./fs.ts";
export { Dirent, Stats } from "./fs-stats.ts";
export { type GatewayOptions, gatewayTransport } from "./gateway.ts";
export type { Held, HoldEnd } from "./hold.ts";
export type { Job, JobChunk, JobExit, StreamRequest } from "./job.ts";
export type { JobLine, JobOutput } from "./job-text.ts";
export {
  type CallOptions,
  type Operation,
  type OperationInput,
  type OperationResult,
  operation,
} from "./operation.ts";
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
