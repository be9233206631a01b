export { canonicalDefinition } from "./definition.ts";
export {
  type Envelope,
  type ErrorEnvelope,
  envelopeErrorCode,
  errorText,
  idKeyOf,
  kindOf,
  type MessageKind,
  type NotificationEnvelope,
  notificationText,
  type RequestEnvelope,
  type ResultEnvelope,
  readEnvelope,
  requestText,
  resultText,
} from "./envelope.ts";
export { MCP_LIMITS } from "./limits.ts";
export {
  isListable,
  joinName,
  joinUri,
  listedName,
  listedNames,
  NAME_SEPARATOR,
  type Named,
  splitName,
  splitUri,
} from "./names.ts";
export {
  decodeHeader,
  headersOfCall,
  headersProblem,
  headerValue,
  PARAM_HEADER_PREFIX,
  type ParamHeader,
  paramHeaders,
} from "./param-headers.ts";
export {
  DEFAULT_HTTP_REVISION,
  type Era,
  eraOf,
  HTTP_NAME_MEMBERS,
  hasMethod,
  isRevision,
  LEGACY_REVISIONS,
  type LegacyRevision,
  META_KEYS,
  METHODS,
  type MethodRow,
  MODERN_REVISIONS,
  type ModernRevision,
  NOTIFICATIONS,
  negotiate,
  REVISIONS,
  type Revision,
  RPC_CODES,
  timeoutOf,
} from "./protocol.ts";
export {
  aroundLastMember,
  arrayText,
  itemsOf,
  memberOf,
  membersOf,
  withLastMember,
  withMember,
  withoutMember,
} from "./raw-members.ts";
export {
  encodeRecord,
  type McpRecord,
  RECORD_TYPES,
  RecordDecoder,
  type RecordKind,
  type RecordStream,
  readRecords,
  writeRecord,
} from "./records.ts";
export { type Shortened, shortened } from "./shortened.ts";
export { type JsonObject, type JsonValue, strictJson, strictObject } from "./strict-json.ts";
