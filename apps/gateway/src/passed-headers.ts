import { createHash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { AUTH_LIMITS } from "./limits.ts";
import { TOKEN_SUBPROTOCOL } from "./websocket-table.ts";

/** What reaches the service of a client's headers. All others end here, the token and hop-by-hop ones among them. */
const TO_SERVICE = [
  "content-type",
  "content-length",
  "traceparent",
  "x-capsem-time-left-ms",
  "x-capsem-client",
  "x-capsem-asks",
  "x-capsem-turn",
] as const;
const TO_CLIENT = ["content-type", "content-length", "retry-after"] as const;
/** How the service knows that a request came from here. The client's own is not passed on. */
const REQUESTER = { "x-capsem-requester": "gateway" } as const;

export function headersToService(headers: IncomingHttpHeaders): Record<string, string> {
  return { ...pick(headers, TO_SERVICE), ...REQUESTER, ...tokenId(headers) };
}

/**
 * Which token a request was admitted with: rows of the service tell a replaced one apart by it. Admission has let one
 * credential through, so there is no other that this could mean.
 */
function tokenId(headers: IncomingHttpHeaders): Record<string, string> {
  const protocols = (headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  const inProtocol = protocols.find((name) => name.startsWith(TOKEN_SUBPROTOCOL));
  const token = BEARER.exec(headers.authorization ?? "")?.[1] ?? inProtocol?.slice(TOKEN_SUBPROTOCOL.length);
  if (token === undefined) return {};
  const digest = createHash("sha256").update(token).digest("hex");
  return { "x-capsem-token-id": digest.slice(0, TOKEN_ID_DIGITS) };
}

const BEARER = new RegExp(`^Bearer ([A-Za-z0-9]{${AUTH_LIMITS.tokenCharacters}})$`);
/** Enough to tell tokens apart, and nothing to find one by. */
const TOKEN_ID_DIGITS = 8;

/** The service's own `x-capsem-` headers pass whatever they are. */
export function headersToClient(headers: IncomingHttpHeaders): Record<string, string> {
  const own = Object.keys(headers).filter((name) => OWN.test(name));
  return pick(headers, [...TO_CLIENT, ...own]);
}

/** What a page may send, for the preflight. */
export function isRequestHeaderAllowed(name: string): boolean {
  return PAGE_HEADERS.has(name) || OWN.test(name);
}

const OWN = /^x-capsem-[a-z0-9-]{1,64}$/;
const PAGE_HEADERS: ReadonlySet<string> = new Set(["authorization", "content-type", "traceparent"]);

function pick(headers: IncomingHttpHeaders, names: readonly string[]): Record<string, string> {
  const picked: Record<string, string> = {};
  for (const name of names) {
    const value = headers[name];
    if (typeof value === "string") picked[name] = value;
  }
  return picked;
}
