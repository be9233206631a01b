import type { IncomingMessage } from "node:http";
import {
  apiFailure,
  type ErrorKind,
  faultLine,
  matchRoute,
  parseOrFaults,
  ROUTES,
  type Route,
  type RouteName,
} from "@capsem/api";
import type { Failure } from "@capsem/base";
import type { AuthFailures } from "./auth-failures.ts";
import { type Headers, preflightHeaders } from "./cors.ts";
import { headerValues, offeredToken } from "./credentials.ts";
import { HTTP_LIMITS } from "./limits.ts";
import { isLoopbackOrigin, isOwnHost } from "./loopback.ts";
import type { TokenStore } from "./token-store.ts";

export interface Gate {
  readonly port: number;
  readonly token: TokenStore;
  readonly failures: AuthFailures;
  monotonicMs(): number;
}

export type Admission = Refused | Preflight | Admitted;

export interface Refused {
  readonly kind: "refused";
  readonly failure: Failure<ErrorKind>;
  readonly headers: Headers;
  readonly generation: number | null;
}

export interface Preflight {
  readonly kind: "preflight";
  readonly headers: Headers;
  readonly generation: null;
}

export interface Admitted {
  readonly kind: "admitted";
  readonly name: RouteName;
  readonly route: Route;
  /** As it came: path and query. */
  readonly target: string;
  /** Of the token that it showed, also where none was needed; null: it showed none, or a wrong one. */
  readonly generation: number | null;
}

/** The origin of a request that may be answered to its page, or null when no page asks or another site's does. */
export function pageOrigin(request: IncomingMessage): string | null {
  const [origin, second] = headerValues(request, "origin");
  return origin !== undefined && second === undefined && isLoopbackOrigin(origin) ? origin : null;
}

/**
 * Whether a request may reach the service. In this order: a request that is what it seems, a name and a page of this
 * machine, the token, the route. Without a token nothing is told about routes but that health is open.
 */
export async function admit(gate: Gate, request: IncomingMessage, isUpgrade: boolean): Promise<Admission> {
  const misshapen = checkShape(request);
  // Where one request ends and the next begins is in doubt: nothing more is read from that connection.
  if (misshapen !== null) return refused(misshapen, { connection: "close" });
  const foreign = checkOrigin(gate, request);
  if (foreign !== null) return refused(foreign);
  const target = request.url ?? "";
  const cut = target.indexOf("?");
  const pathname = cut === -1 ? target : target.slice(0, cut);
  if (request.method === "OPTIONS" && !isUpgrade) return preflight(request, pathname);
  const match = matchRoute(request.method ?? "", pathname);
  const route: Route | null = match === null ? null : ROUTES[match.name];
  const offered = offeredToken(request, isUpgrade);
  const generation = offered === null ? null : await gate.token.generationOf(offered);
  if (generation === null && route?.isOpen !== true) return deny(gate);
  if (match === null || route === null) return refused(noRoute(request.method), {}, generation);
  const bad = checkRoute(request, route, match.params, isUpgrade);
  if (bad !== null) return refused(bad, {}, generation);
  return { kind: "admitted", name: match.name, route, target, generation };
}

function deny(gate: Gate): Admission {
  const throttled = gate.failures.record(gate.monotonicMs());
  if (throttled === null) {
    const reason = "Cannot serve the request: it has no token, or not the current one";
    return refused(apiFailure("unauthorized", reason), { "www-authenticate": "Bearer" });
  }
  const seconds = Math.max(1, Math.ceil(throttled.retryMs / 1000));
  return refused(
    apiFailure("throttled", `Cannot serve the request: too many without the token, retry in ${seconds} s`),
    { "retry-after": String(seconds) },
  );
}

/** Headers that decide something, and would be read differently by us and another reader when given twice. */
const SINGLE = [
  "host",
  "origin",
  "content-length",
  "content-type",
  "transfer-encoding",
  "expect",
  "upgrade",
  "sec-websocket-key",
  "sec-websocket-version",
  "sec-websocket-protocol",
] as const;

function checkShape(request: IncomingMessage): Failure<ErrorKind> | null {
  if (request.httpVersion !== "1.1") return unreadable("it is not HTTP/1.1");
  if (request.rawHeaders.length > 2 * HTTP_LIMITS.headersMax) {
    return apiFailure("too_large", `Cannot read the request: more than ${HTTP_LIMITS.headersMax} headers`);
  }
  for (const name of SINGLE) {
    if (headerValues(request, name).length > 1) return unreadable(`header "${name}" is given twice`);
  }
  const coding = request.headers["transfer-encoding"];
  if (coding !== undefined && coding.toLowerCase() !== "chunked") {
    return unreadable("its transfer coding is not chunked alone");
  }
  if (coding !== undefined && request.headers["content-length"] !== undefined) {
    return unreadable("it has a length and a transfer coding");
  }
  if (!TARGET.test(request.url ?? "")) return unreadable("its target is not a path in plain ASCII");
  return null;
}

/** Origin form alone: an absolute one names a host beside the Host header. */
const TARGET = /^\/[\x21\x22\x24-\x7e]*$/;

function checkOrigin(gate: Gate, request: IncomingMessage): Failure<ErrorKind> | null {
  if (!isOwnHost(request.headers.host, gate.port)) {
    return apiFailure("origin_refused", "Cannot serve the request: its Host is not this gateway's");
  }
  if (request.headers.origin !== undefined && pageOrigin(request) === null) {
    return apiFailure("origin_refused", "Cannot serve the request: its Origin is not of this machine");
  }
  return null;
}

function preflight(request: IncomingMessage, pathname: string): Admission {
  const origin = pageOrigin(request);
  const method = request.headers["access-control-request-method"];
  if (origin === null || method === undefined || matchRoute(method, pathname) === null) {
    return refused(noRoute("OPTIONS"));
  }
  const asked = request.headers["access-control-request-headers"];
  return { kind: "preflight", headers: preflightHeaders(origin, method, asked), generation: null };
}

function checkRoute(
  request: IncomingMessage,
  route: Route,
  params: Readonly<Record<string, string>>,
  isUpgrade: boolean,
): Failure<ErrorKind> | null {
  if ((route.request === "websocket") !== isUpgrade) {
    return unreadable(isUpgrade ? "the route takes no upgrade" : "the route is a WebSocket");
  }
  const parsed = route.params === undefined ? null : parseOrFaults(route.params, params);
  // In the service's own words, which repeat no value.
  if (parsed?.kind === "faults") return unreadable(`path: ${faultLine(parsed.faults)}`);
  if (request.headers.expect !== undefined && request.headers.expect.toLowerCase() !== "100-continue") {
    return unreadable("its expectation is unknown");
  }
  const length = Number(request.headers["content-length"] ?? 0);
  const hasBody = length > 0 || request.headers["transfer-encoding"] !== undefined;
  if (hasBody && route.request !== "json" && route.request !== "bytes") {
    return unreadable("the route takes no body");
  }
  if (route.request === "json" && length > HTTP_LIMITS.bodyBytesMax) return bodyTooLarge();
  return null;
}

export function bodyTooLarge(): Failure<ErrorKind> {
  return apiFailure(
    "too_large",
    `Cannot read the request: its body is larger than ${HTTP_LIMITS.bodyBytesMax} bytes`,
  );
}

/** The target is not said back: it may hold what somebody put there by mistake. */
function noRoute(method: string | undefined): Failure<ErrorKind> {
  return apiFailure("route_not_found", `Cannot serve ${method}: no such route`);
}

function unreadable(state: string): Failure<ErrorKind> {
  return apiFailure("invalid_input", `Cannot read the request: ${state}`);
}

function refused(
  failure: Failure<ErrorKind>,
  headers: Headers = {},
  generation: number | null = null,
): Admission {
  return { kind: "refused", failure, headers, generation };
}
