import { META_KEYS, memberOf, membersOf, withMember } from "@capsem/mcp-protocol";
import type { ClientAnswers } from "./open-call.ts";

/** What goes out as the params of a request. */
export interface PreparedParams {
  readonly text: string | undefined;
  /** The client's own progress token, as JSON; ours is in its place. */
  readonly tokenText: string | null;
}

export interface ModernEnvelope {
  readonly protocol: string;
  /** A JSON object. */
  readonly clientInfo: string;
  readonly client: ClientAnswers;
  /** JSON; null: the server is asked for no log. */
  readonly logLevel: string | null;
}

/** What a client says of itself in 2026-07-28. A server of a handshake was told by that, and may take offence. */
const CLAIMS = [META_KEYS.protocolVersion, META_KEYS.clientInfo, META_KEYS.clientCapabilities];

/** For a server of the handshake: as given, but for the progress token and the claims of the other era. */
export function legacyParams(paramsText: string | undefined, ourToken: string): PreparedParams {
  const meta = metaOf(paramsText);
  if (paramsText === undefined || meta === null) return { text: paramsText, tokenText: null };
  const tokenText = replaceToken(meta, ourToken);
  let isChanged = tokenText !== null;
  for (const key of [...CLAIMS, META_KEYS.logLevel]) isChanged = meta.delete(key) || isChanged;
  if (!isChanged) return { text: paramsText, tokenText };
  return { text: withMember(paramsText, "_meta", objectText(meta)), tokenText };
}

/** For a server of 2026-07-28, which is told with each request who asks, and what they can answer. */
export function modernParams(
  paramsText: string | undefined,
  ourToken: string,
  envelope: ModernEnvelope,
): PreparedParams & { readonly text: string } {
  const found = metaOf(paramsText);
  const meta = found ?? new Map<string, string>();
  const tokenText = replaceToken(meta, ourToken);
  meta.set(META_KEYS.protocolVersion, JSON.stringify(envelope.protocol));
  meta.set(META_KEYS.clientInfo, envelope.clientInfo);
  meta.set(META_KEYS.clientCapabilities, capabilitiesText(envelope.client));
  if (envelope.logLevel !== null && !meta.has(META_KEYS.logLevel)) {
    meta.set(META_KEYS.logLevel, envelope.logLevel);
  }
  const text = objectText(meta);
  if (found !== null) return { text: withMember(paramsText ?? "{}", "_meta", text), tokenText };
  return { text: withFirstMember(paramsText ?? "{}", "_meta", text), tokenText };
}

/** `rootsText`: what is said of roots beside that there are some. */
export function capabilitiesText({ sampling, elicitation, roots }: ClientAnswers, rootsText = "{}"): string {
  const parts: string[] = [];
  if (sampling) parts.push('"sampling":{}');
  if (elicitation) parts.push('"elicitation":{"form":{},"url":{}}');
  if (roots) parts.push(`"roots":${rootsText}`);
  return `{${parts.join(",")}}`;
}

/** The members of `_meta`, or null. Most requests have none, which costs one search. */
function metaOf(paramsText: string | undefined): Map<string, string> | null {
  if (paramsText === undefined || !paramsText.includes('"_meta"')) return null;
  const meta = memberOf(paramsText, "_meta");
  return meta === undefined || !meta.startsWith("{") ? null : membersOf(meta);
}

function replaceToken(meta: Map<string, string>, ourToken: string): string | null {
  const tokenText = meta.get("progressToken");
  if (tokenText === undefined) return null;
  meta.set("progressToken", ourToken);
  return tokenText;
}

function objectText(members: ReadonlyMap<string, string>): string {
  return `{${[...members].map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`;
}

/** In front of the others, so that a large object is not looked through. */
function withFirstMember(text: string, name: string, value: string): string {
  const behind = text.indexOf("{") + 1;
  const rest = text.slice(behind);
  const comma = /^\s*\}/.test(rest) ? "" : ",";
  return `${text.slice(0, behind)}${JSON.stringify(name)}:${value}${comma}${rest}`;
}
