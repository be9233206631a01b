import { isLoopbackHost } from "@capsem/base";
import { CapsemError } from "./error.ts";

export interface GatewayUrl {
  /** What a path is appended to, without a slash at its end. */
  readonly http: string;
  readonly webSocket: string;
  readonly url: URL;
}

export interface GatewayUrlOptions {
  /** Sends the token over plain http to another machine: only where the network between them reads nothing. */
  readonly allowsClearText?: boolean;
}

/** The address of a gateway: http or https, a host, perhaps a port and a path before all others. */
export function parseGatewayUrl(text: string, { allowsClearText }: GatewayUrlOptions = {}): GatewayUrl {
  let url: URL;
  try {
    url = new URL(text);
  } catch (cause) {
    throw unusable("it is no URL", cause);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw unusable("it is not http or https");
  // A secret in an address ends up in logs; the token has an option of its own.
  if (url.username !== "" || url.password !== "") throw unusable("it has a user or password");
  if (url.search !== "" || url.hash !== "") throw unusable("it has a query or fragment");
  if (url.protocol === "http:") {
    if (!isLoopbackHost(url.hostname) && allowsClearText !== true)
      throw unusable("over http the token could be read on its way, use https (or allowsClearText)");
    // The gateway listens on IPv4 alone; the same port of ::1 may be another user's.
    if (url.hostname === "localhost") url.hostname = "127.0.0.1";
  }
  const http = `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
  return { http, webSocket: http.replace(/^http/, "ws"), url };
}

function unusable(why: string, cause?: unknown): CapsemError {
  return new CapsemError("invalid_input", `Cannot use the gateway's URL: ${why}`, { cause });
}
