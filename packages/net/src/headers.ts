import type { HttpHeader } from "./http-client.ts";
import { NET_LIMITS } from "./limits.ts";

/** About one connection, or set by whoever dials: never passed on, in either direction. */
export const HOP_BY_HOP: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-authentication-info",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "expect",
  "http2-settings",
]);

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** RFC 9110: visible characters, bytes above ASCII, space and tab. */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Why these are no headers of a request, in words; null for good ones. A line break in one would be another one. */
export function headerProblem(headers: readonly HttpHeader[]): string | null {
  if (headers.length > NET_LIMITS.headersMax) {
    return `there are ${headers.length} headers, limit ${NET_LIMITS.headersMax}`;
  }
  let characters = 0;
  for (const [name, value] of headers) {
    if (!TOKEN.test(name)) return `${JSON.stringify(name.slice(0, 64))} is no name of a header`;
    if (!VALUE.test(value)) return `the value of the header ${name} has characters that none may have`;
    characters += name.length + value.length;
  }
  const limit = NET_LIMITS.headerCharactersMax;
  return characters > limit ? `the headers have ${characters} characters, limit ${limit}` : null;
}

/** The first value of a header by its lower-case name; undefined without one. */
export function headerOf(headers: readonly HttpHeader[], name: string): string | undefined {
  for (const [each, value] of headers) {
    if (each.length === name.length && each.toLowerCase() === name) return value;
  }
  return undefined;
}
