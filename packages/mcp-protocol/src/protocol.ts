/** What MCP fixes: revisions, methods, codes, keys. Nothing here is ours but the time limits. */

/** Newest first. These start by a handshake (`initialize`). */
export const LEGACY_REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] as const;
/** Newest first. Each request of these says all that it needs; there is no handshake and no session. */
export const MODERN_REVISIONS = ["2026-07-28"] as const;
export const REVISIONS = [...MODERN_REVISIONS, ...LEGACY_REVISIONS] as const;
export type LegacyRevision = (typeof LEGACY_REVISIONS)[number];
export type ModernRevision = (typeof MODERN_REVISIONS)[number];
export type Revision = LegacyRevision | ModernRevision;
export type Era = "legacy" | "modern";

/** Of a legacy client over HTTP that sends no version header. */
export const DEFAULT_HTTP_REVISION: LegacyRevision = "2025-03-26";

export function isRevision(text: string): text is Revision {
  return (REVISIONS as readonly string[]).includes(text);
}

/** Null: a revision that we do not speak. */
export function eraOf(revision: string): Era | null {
  if ((MODERN_REVISIONS as readonly string[]).includes(revision)) return "modern";
  return (LEGACY_REVISIONS as readonly string[]).includes(revision) ? "legacy" : null;
}

/** What `initialize` is answered with: what was asked for, else our newest; the client decides whether it goes on. */
export function negotiate(asked: string): LegacyRevision {
  return LEGACY_REVISIONS.find((revision) => revision === asked) ?? LEGACY_REVISIONS[0];
}

export const RPC_CODES = {
  parseError: -32_700,
  /** Also a bad frame, and what policy refused. */
  invalidRequest: -32_600,
  methodNotFound: -32_601,
  invalidParams: -32_602,
  /** Dispatch failed. */
  internalError: -32_603,
  timedOut: -32_000,
  /** Of sessions over HTTP. */
  sessionNotFound: -32_001,
  /** 2026-07-28: a header says other than the body. */
  headerMismatch: -32_020,
  /** 2026-07-28: it needs what the client did not declare. */
  missingCapability: -32_021,
  /** 2026-07-28; its data is {supported, requested}. */
  unsupportedVersion: -32_022,
  /** 2025-11-25: its data is {elicitations}. */
  urlElicitationRequired: -32_042,
} as const;

export interface MethodRow {
  readonly eras: readonly Era[];
  /** Of one call in all; null: it goes on until somebody ends it. */
  readonly timeoutMs: number | null;
}

const both: readonly Era[] = ["legacy", "modern"];
const legacy: readonly Era[] = ["legacy"];
const modern: readonly Era[] = ["modern"];
const CALL_TIMEOUT_MS = 300_000;
const OTHER_TIMEOUT_MS = 60_000;

/** Requests of a client. */
export const METHODS = {
  initialize: { eras: legacy, timeoutMs: OTHER_TIMEOUT_MS },
  ping: { eras: legacy, timeoutMs: OTHER_TIMEOUT_MS },
  "server/discover": { eras: modern, timeoutMs: OTHER_TIMEOUT_MS },
  "tools/list": { eras: both, timeoutMs: OTHER_TIMEOUT_MS },
  "tools/call": { eras: both, timeoutMs: CALL_TIMEOUT_MS },
  "resources/list": { eras: both, timeoutMs: OTHER_TIMEOUT_MS },
  "resources/templates/list": { eras: both, timeoutMs: OTHER_TIMEOUT_MS },
  "resources/read": { eras: both, timeoutMs: OTHER_TIMEOUT_MS },
  "resources/subscribe": { eras: legacy, timeoutMs: OTHER_TIMEOUT_MS },
  "resources/unsubscribe": { eras: legacy, timeoutMs: OTHER_TIMEOUT_MS },
  "prompts/list": { eras: both, timeoutMs: OTHER_TIMEOUT_MS },
  "prompts/get": { eras: both, timeoutMs: OTHER_TIMEOUT_MS },
  "completion/complete": { eras: both, timeoutMs: OTHER_TIMEOUT_MS },
  "logging/setLevel": { eras: legacy, timeoutMs: OTHER_TIMEOUT_MS },
  "subscriptions/listen": { eras: modern, timeoutMs: null },
} as const satisfies Readonly<Record<string, MethodRow>>;

const methods: ReadonlyMap<string, MethodRow> = new Map(Object.entries(METHODS));

export function hasMethod(era: Era, method: string): boolean {
  return methods.get(method)?.eras.includes(era) ?? false;
}

/** Of one call; null: none. A method that is not in the table has the limit of most. */
export function timeoutOf(method: string): number | null {
  const row = methods.get(method);
  return row === undefined ? OTHER_TIMEOUT_MS : row.timeoutMs;
}

export const NOTIFICATIONS = {
  initialized: "notifications/initialized",
  cancelled: "notifications/cancelled",
  progress: "notifications/progress",
  message: "notifications/message",
  rootsChanged: "notifications/roots/list_changed",
  toolsChanged: "notifications/tools/list_changed",
  promptsChanged: "notifications/prompts/list_changed",
  resourcesChanged: "notifications/resources/list_changed",
  resourceUpdated: "notifications/resources/updated",
  elicitationComplete: "notifications/elicitation/complete",
  subscriptionsAcknowledged: "notifications/subscriptions/acknowledged",
} as const;

/** Members of `_meta`: those of 2026-07-28, of every request, and what goes with a call. */
export const META_KEYS = {
  protocolVersion: "io.modelcontextprotocol/protocolVersion",
  clientInfo: "io.modelcontextprotocol/clientInfo",
  clientCapabilities: "io.modelcontextprotocol/clientCapabilities",
  logLevel: "io.modelcontextprotocol/logLevel",
  serverInfo: "io.modelcontextprotocol/serverInfo",
  subscriptionId: "io.modelcontextprotocol/subscriptionId",
  relatedTask: "io.modelcontextprotocol/related-task",
  progressToken: "progressToken",
  traceparent: "traceparent",
  tracestate: "tracestate",
  baggage: "baggage",
} as const;

/** Which member of `params` the header `Mcp-Name` repeats, by method (2026-07-28). */
export const HTTP_NAME_MEMBERS: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
};
