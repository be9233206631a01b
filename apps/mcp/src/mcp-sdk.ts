/** The one place that names the protocol's SDK. */

export type {
  ClientCapabilities,
  ElicitRequestFormParams,
  Implementation,
  InputRequiredResult,
  JSONRPCMessage,
  MessageExtraInfo,
  ServerContext,
  Tool as ListedTool,
  Transport,
} from "@modelcontextprotocol/server";
export {
  type CallToolResult,
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
  ProtocolError,
  ProtocolErrorCode,
  SdkError,
  SdkErrorCode,
  Server,
} from "@modelcontextprotocol/server";
export { serveStdio } from "@modelcontextprotocol/server/stdio";
