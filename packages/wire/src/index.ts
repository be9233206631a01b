export { UNSTAMPED_US, writeAgentUs } from "./agent-time.ts";
export { type ByteReader, createByteReader } from "./byte-reader.ts";
export {
  type ControlPort,
  decodeGuestMessage,
  decodeHostMessage,
  encodeGuestMessage,
  encodeHostMessage,
  type GuestControlPort,
  guestControlPort,
  type HostControlPort,
  hostControlPort,
} from "./control-codec.ts";
export { discardRest } from "./discard-rest.ts";
export { type DuplexLike, muxTransport, pump } from "./duplex.ts";
export { FRAME_TYPES, type FrameTypeName, RESET_CODES } from "./frame.ts";
export {
  createGuestControlLane,
  createGuestDataLane,
  type GuestControlOptions,
  type GuestDataLane,
  type GuestLaneOptions,
} from "./guest-lane.ts";
export {
  createHostControlLane,
  createHostDataLane,
  type HostControlLane,
  type HostControlStart,
  type HostDataLane,
  type HostLaneOptions,
  type StartedLane,
  startHostLanes,
} from "./host-lane.ts";
export {
  encodeJobChunks,
  JOB_CHUNK_HEADER_BYTES,
  JOB_CHUNK_KINDS,
  type JobChunk,
  JobChunkDecoder,
  type JobChunkKind,
  readJobChunks,
  writeJobChunks,
} from "./job-chunks.ts";
export type { Lane } from "./lane.ts";
export {
  type DataHello,
  type GuestHello,
  type HostHello,
  MARKER_BYTES,
  WIRE_GENERATION,
  type WireIdentity,
} from "./lane-hello.ts";
export { WIRE_LIMITS } from "./limits.ts";
export {
  encodeMcpEnd,
  encodeMcpMessage,
  encodeMcpParts,
  MCP_FRAME_FLAGS,
  MCP_FRAME_MAGIC,
  MCP_FRAME_PREFIX_BYTES,
  MCP_FRAME_VERSION,
  McpFrameFault,
  type McpFrameHeader,
  type McpMessage,
  type McpMessageHead,
  readMcpFrameHeader,
} from "./mcp-frame.ts";
export { MCP_FRAME_LIMITS } from "./mcp-frame-limits.ts";
export { McpFrameReader } from "./mcp-frame-reader.ts";
export { createMemoryLink, type LinkEnd, type LinkOptions } from "./memory-link.ts";
export * from "./message-table.ts";
export { encodeMetaLine, type MetaLine, parseMetaLine } from "./meta-line.ts";
export { decodeMessagePack, encodeMessagePack, encodeMessagePackParts } from "./msgpack.ts";
export { createMux } from "./mux.ts";
export { LANES, type LaneName, PORTS, type PortName } from "./port-table.ts";
export { prefixedStream } from "./prefixed-stream.ts";
export { cleanProcessName } from "./process-name.ts";
export { TABLE_HASH } from "./table-hash.ts";
export { TRAFFIC_KIND_BYTES, type TrafficKind, trafficKindOf } from "./traffic-kind.ts";
export type { Borrower, Mux, MuxEnd, MuxOptions, MuxStream, ResetCode, Role, Transport } from "./types.ts";
export { WIRE_IDENTITY } from "./wire-identity.ts";
