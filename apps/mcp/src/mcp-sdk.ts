/** The one place that names the protocol's SDK. */

export type {
  JSONRPCMessage,
  MessageExtraInfo,
  ServerContext,
  Tool as ListedTool,
  Transport,
} from "@modelcontextprotocol/server";
export { type CallToolResult, ProtocolError, ProtocolErrorCode, Server } from "@modelcontextprotocol/server";
export { serveStdio } from "@modelcontextprotocol/server/stdio";
