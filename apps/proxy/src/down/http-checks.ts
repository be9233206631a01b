/** What is checked of a request before its body is read, on what the client says alone. */
import type { IncomingMessage } from "node:http";
import { PARAM_HEADER_PREFIX } from "@capsem/mcp-protocol";

/** The one name that is served, and the zone whose names are all ours. */
export const MCP_HOST = "mcp.capsem.internal";
export const MCP_PATH = "/mcp";
export const MCP_PORT = 80;

/** Where a request is meant to go. */
export interface Target {
  /** Lower case, without a trailing dot; empty where it cannot be read. */
  readonly host: string;
  readonly port: number | null;
  readonly path: string;
}

/**
 * By the request line where it names a host (as through a proxy), else by Host. Two that differ, two Host headers, or one
 * that is no host make an empty one.
 */
export function targetOf(request: IncomingMessage): Target {
  const url = request.url ?? "";
  const named = hostHeadersOf(request);
  const header = named.length === 1 ? parseHost(named[0] ?? "") : undefined;
  const absolute = /^http:\/\/([^/?#]*)([^#]*)/i.exec(url);
  if (absolute === null) return targetAt(header, pathOf(url));
  const line = parseHost(absolute[1] ?? "");
  const path = pathOf(absolute[2] === "" ? "/" : (absolute[2] ?? ""));
  const isSame = line !== undefined && header?.host === line.host && header.port === line.port;
  return targetAt(isSame ? line : undefined, path);
}

function targetAt(host: { host: string; port: number } | undefined, path: string): Target {
  return { host: host?.host ?? "", port: host?.port ?? null, path };
}

function hostHeadersOf(request: IncomingMessage): string[] {
  const found: string[] = [];
  // Node keeps the first of two in `headers`, and an attacker would choose which one that is.
  for (let at = 0; at + 1 < request.rawHeaders.length; at += 2) {
    if (request.rawHeaders[at]?.toLowerCase() === "host") found.push(request.rawHeaders[at + 1] ?? "");
  }
  return found;
}

/** `NAME`, `NAME.`, `NAME:PORT`, in any case. */
export function parseHost(text: string): { host: string; port: number } | undefined {
  const match = /^([a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::([0-9]{1,5}))?$/i.exec(text.trim());
  if (match === null) return undefined;
  const port = match[2] === undefined ? MCP_PORT : Number(match[2]);
  return { host: (match[1] ?? "").toLowerCase().replace(/\.$/, ""), port };
}

export function isOurs({ host, port }: { host: string; port: number | null }): boolean {
  return host === MCP_HOST && port === MCP_PORT;
}

/** A page of another origin that a browser in the VM shows must not call tools; programs send no Origin. */
export function isOriginAllowed(origin: string | undefined): boolean {
  if (origin === undefined) return true;
  const match = /^http:\/\/(.*)$/i.exec(origin);
  const host = match === null ? undefined : parseHost(match[1] ?? "");
  return host !== undefined && isOurs(host);
}

function pathOf(url: string): string {
  const query = url.indexOf("?");
  return query < 0 ? url : url.slice(0, query);
}

export function isJson(contentType: string | undefined): boolean {
  return (contentType ?? "").split(";")[0]?.trim().toLowerCase() === "application/json";
}

/** In which form a client takes an answer. */
export interface Accepts {
  readonly json: boolean;
  /** Named: a program that takes anything expects no event stream. */
  readonly stream: boolean;
  /** Named before JSON. */
  readonly prefersStream: boolean;
}

export function acceptsOf(accept: string | undefined): Accepts {
  if (accept === undefined) return { json: true, stream: false, prefersStream: false };
  const types = accept.split(",").map((part) => (part.split(";")[0] ?? "").trim().toLowerCase());
  const json = types.findIndex((type) => ["application/json", "application/*", "*/*"].includes(type));
  const stream = types.indexOf("text/event-stream");
  return { json: json >= 0, stream: stream >= 0, prefersStream: stream >= 0 && (json < 0 || stream < json) };
}

/** One header, or undefined where it is absent. */
export function headerOf(request: IncomingMessage, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value.join(", ") : value;
}

/** What headers repeat of a tool's arguments, by their names in lower case. */
export function paramHeadersOf(request: IncomingMessage): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const [name, value] of Object.entries(request.headers)) {
    if (name.startsWith(PARAM_HEADER_PREFIX) && typeof value === "string") found.set(name, value);
  }
  return found;
}
