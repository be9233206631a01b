import { isRequestHeaderAllowed } from "./passed-headers.ts";

export type Headers = Readonly<Record<string, string>>;

/** On every answer: none is for another site's page, none is kept or guessed at by a browser. */
const ALWAYS: Headers = {
  vary: "origin",
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "cross-origin-resource-policy": "same-origin",
};

/** `origin` is one that was found to be a loopback origin, or null. Never a wildcard, never credentials. */
export function answerHeaders(origin: string | null): Headers {
  if (origin === null) return ALWAYS;
  return {
    ...ALWAYS,
    "access-control-allow-origin": origin,
    "access-control-expose-headers": EXPOSED,
  };
}

const EXPOSED = "x-capsem-size, x-capsem-offset, x-capsem-truncated, retry-after";

/** Asked headers that no request may carry are left out: the browser then does not send the request. */
export function preflightHeaders(origin: string, method: string, asked: string | undefined): Headers {
  const names = (asked ?? "").split(",").map((name) => name.trim().toLowerCase());
  return {
    ...answerHeaders(origin),
    "access-control-allow-methods": method,
    "access-control-allow-headers": names.filter(isRequestHeaderAllowed).join(", "),
    "access-control-max-age": "600",
    vary: "origin, access-control-request-method, access-control-request-headers",
    "content-length": "0",
  };
}
