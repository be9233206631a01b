/** Which revision a request over HTTP is of, and whether its headers say what its body says (2026-07-28). */
import {
  DEFAULT_HTTP_REVISION,
  decodeHeader,
  type Envelope,
  eraOf,
  HTTP_NAME_MEMBERS,
  isRevision,
  META_KEYS,
  MODERN_REVISIONS,
  membersOf,
  REVISIONS,
  RPC_CODES,
} from "@capsem/mcp-protocol";

export interface EraHeaders {
  readonly version: string | undefined;
  readonly method: string | undefined;
  readonly name: string | undefined;
}

/** Answered with status 400. */
export interface EraRefusal {
  readonly kind: "refused";
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}
export interface KnownEra {
  readonly kind: "modern" | "legacy";
  readonly revision: string;
}

/**
 * The body decides: what claims a modern revision in `_meta` is modern, `initialize` is legacy, and the headers must agree.
 * Throws as `membersOf` does.
 */
export function eraOfRequest(message: Envelope, headers: EraHeaders): KnownEra | EraRefusal {
  const isHeaderModern = headers.version !== undefined && eraOf(headers.version) === "modern";
  const isCall = message.kind === "request" || message.kind === "notification";
  const claim = isCall ? claimOf(message.paramsText) : undefined;
  if (claim !== undefined) {
    if (!isRevision(claim)) return versionMismatch(claim, headers) ?? unsupported(claim, MODERN_REVISIONS);
    if (eraOf(claim) === "modern") return modern(message, claim, headers);
  }
  if (isHeaderModern) return withoutClaim(message, headers.version ?? "");
  if (message.kind === "request" && message.method === "initialize") return legacy(DEFAULT_HTTP_REVISION);
  if (headers.version !== undefined && !isRevision(headers.version))
    return unsupported(headers.version, REVISIONS);
  return legacy(headers.version ?? DEFAULT_HTTP_REVISION);
}

function legacy(revision: string): KnownEra {
  return { kind: "legacy", revision };
}

/** A modern header, and no claim in the body. */
function withoutClaim(message: Envelope, revision: string): KnownEra | EraRefusal {
  if (message.kind === "notification") return { kind: "modern", revision };
  if (message.kind !== "request") {
    return refused(RPC_CODES.invalidRequest, `revision ${revision} has no requests of servers to answer`);
  }
  if (message.method === "initialize") return mismatch(`revision ${revision} has no initialize`);
  const missing = [META_KEYS.protocolVersion, META_KEYS.clientCapabilities];
  return refused(RPC_CODES.invalidParams, `_meta lacks ${missing.join(" and ")}`, { missing });
}

function modern(message: Envelope, claim: string, headers: EraHeaders): KnownEra | EraRefusal {
  const other = versionMismatch(claim, headers);
  if (other !== undefined) return other;
  if (message.kind !== "request") return { kind: "modern", revision: claim };
  if (headers.version === undefined) return mismatch("MCP-Protocol-Version is missing");
  const params = membersOf(message.paramsText ?? "{}");
  const meta = membersOf(params.get("_meta") ?? "{}");
  if (meta.get(META_KEYS.clientCapabilities)?.startsWith("{") !== true) {
    const missing = [META_KEYS.clientCapabilities];
    return refused(RPC_CODES.invalidParams, `_meta lacks ${META_KEYS.clientCapabilities}`, { missing });
  }
  if (headers.method === undefined) return mismatch("Mcp-Method is missing");
  if (headers.method.trim() !== message.method) {
    return mismatch(`Mcp-Method is ${shown(headers.method)}, and the body says ${shown(message.method)}`);
  }
  return checkName(message.method, params, headers.name) ?? { kind: "modern", revision: claim };
}

function versionMismatch(claim: string, { version }: EraHeaders): EraRefusal | undefined {
  if (version === undefined || version === claim) return undefined;
  return mismatch(`MCP-Protocol-Version is ${shown(version)}, and _meta says ${shown(claim)}`);
}

function checkName(
  method: string,
  params: ReadonlyMap<string, string>,
  header: string | undefined,
): EraRefusal | undefined {
  const member = Object.hasOwn(HTTP_NAME_MEMBERS, method) ? HTTP_NAME_MEMBERS[method] : undefined;
  if (member === undefined) return undefined;
  const said = stringOf(params.get(member));
  // Without a name the request is wrong in another way, which is not for here to say.
  if (said === undefined) return undefined;
  if (header === undefined) return mismatch(`Mcp-Name is missing, and params.${member} is ${shown(said)}`);
  const decoded = decodeHeader(header);
  if (decoded === undefined) return mismatch("Mcp-Name is badly encoded");
  return decoded === said
    ? undefined
    : mismatch(`Mcp-Name is ${shown(decoded)}, and params.${member} is ${shown(said)}`);
}

/** What `_meta` says of the revision; undefined: nothing. */
function claimOf(paramsText: string | undefined): string | undefined {
  if (paramsText === undefined) return undefined;
  const meta = membersOf(paramsText).get("_meta");
  if (meta === undefined || !meta.startsWith("{")) return undefined;
  return stringOf(membersOf(meta).get(META_KEYS.protocolVersion));
}

function stringOf(text: string | undefined): string | undefined {
  return text?.startsWith('"') === true ? (JSON.parse(text) as string) : undefined;
}

/** `supported`: to whoever speaks without a handshake, what `server/discover` says; else all. */
function unsupported(requested: string, supported: readonly string[]): EraRefusal {
  const data = { supported, requested: requested.slice(0, 64) };
  return refused(RPC_CODES.unsupportedVersion, `protocol version ${shown(requested)} is not supported`, data);
}

function mismatch(reason: string): EraRefusal {
  return refused(RPC_CODES.headerMismatch, `headers and body differ: ${reason}`);
}

function refused(code: number, reason: string, data?: unknown): EraRefusal {
  const message = `Cannot take request: ${reason}`;
  return data === undefined ? { kind: "refused", code, message } : { kind: "refused", code, message, data };
}

function shown(text: string): string {
  return JSON.stringify(text.length > 64 ? `${text.slice(0, 64)}…` : text);
}
