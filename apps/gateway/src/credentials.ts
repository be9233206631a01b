import type { IncomingMessage } from "node:http";
import { AUTH_LIMITS } from "./limits.ts";
import { TOKEN_SUBPROTOCOL } from "./websocket-table.ts";

const BEARER = new RegExp(`^Bearer ([A-Za-z0-9]{${AUTH_LIMITS.tokenCharacters}})$`);

/**
 * The offered token, or null. The scheme is spelled one way; two credentials are none, because a front and what is
 * behind it could each take another one.
 */
export function offeredToken(request: IncomingMessage, isUpgrade: boolean): string | null {
  const headers = headerValues(request, "authorization");
  const inProtocols = isUpgrade
    ? offeredProtocols(request).filter((name) => name.startsWith(TOKEN_SUBPROTOCOL))
    : [];
  if (headers.length + inProtocols.length !== 1) return null;
  const [header] = headers;
  if (header !== undefined) return BEARER.exec(header)?.[1] ?? null;
  return inProtocols[0]?.slice(TOKEN_SUBPROTOCOL.length) ?? null;
}

export function offeredProtocols(request: IncomingMessage): string[] {
  const header = request.headers["sec-websocket-protocol"] ?? "";
  return header.split(",").map((name) => name.trim());
}

/** Every value of a header as it came; Node's own view keeps the first of some and joins others. */
export function headerValues(request: IncomingMessage, name: string): string[] {
  const { rawHeaders } = request;
  return rawHeaders.filter((_value, index) => {
    return index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === name;
  });
}
