import { CapsemError } from "./error.ts";

export interface GatewayUrl {
  /** What a path is appended to, without a slash at its end. */
  readonly http: string;
  readonly webSocket: string;
  readonly url: URL;
}

/** The address of a gateway: http or https, a host, perhaps a port and a path before all others. */
export function parseGatewayUrl(text: string): GatewayUrl {
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
  const http = `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
  return { http, webSocket: http.replace(/^http/, "ws"), url };
}

function unusable(why: string, cause?: unknown): CapsemError {
  return new CapsemError("invalid_input", `Cannot use the gateway's URL: ${why}`, { cause });
}
