export { type Client, createClient } from "./client.ts";
export { CapsemError, type CapsemErrorOptions, type ErrorObject } from "./error.ts";
export type { FileWindow, VmFiles } from "./files.ts";
export type { Held, HoldEnd } from "./hold.ts";
export type { Job, JobChunk, JobExit, StreamRequest } from "./job.ts";
export {
  type CallOptions,
  type Operation,
  type OperationInput,
  type OperationResult,
  operation,
} from "./operation.ts";
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
