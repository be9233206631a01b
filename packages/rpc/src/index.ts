export { RPC_LIMITS } from "./limits.ts";
export { createPeer, type PeerOptions } from "./peer.ts";
export type {
  CallOptions,
  Handler,
  OpenedCall,
  Peer,
  RpcContext,
  StreamAnswer,
  StreamHandler,
} from "./types.ts";
