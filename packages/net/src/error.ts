import { Failure, messageOf } from "@capsem/base";

/** How a request ends without an answer. `policy` has `rule_id` in its facts where a rule said it. */
export const HTTP_FAILURES = [
  "policy",
  "not_found",
  "dns_failed",
  "connect_failed",
  "tls_failed",
  "timeout",
  "cancelled",
  /** It was connected, and answered nothing that is HTTP, or not all of it. */
  "upstream_failed",
  /** The process that dials is gone; another one comes. Whether the request was made is unknown. */
  "egress_lost",
  "invalid_input",
] as const;
export type HttpFailureKind = (typeof HTTP_FAILURES)[number];

export function httpFailure(
  kind: HttpFailureKind,
  message: string,
  options: ConstructorParameters<typeof Failure>[2] = {},
): Failure<HttpFailureKind> {
  return new Failure(kind, message, options);
}

const KNOWN: ReadonlySet<string> = new Set(HTTP_FAILURES);
const LOST: ReadonlySet<string> = new Set(["peer_lost", "lane_lost"]);

/** What an rpc call throws, as one of ours. */
export function asHttpFailure(thrown: unknown): Failure<HttpFailureKind> {
  if (!(thrown instanceof Failure)) {
    return httpFailure("upstream_failed", `Cannot fetch: ${messageOf(thrown)}`, { cause: thrown });
  }
  if (KNOWN.has(thrown.kind)) return thrown as Failure<HttpFailureKind>;
  if (LOST.has(thrown.kind)) {
    const text = "Cannot fetch: the process that dials is gone";
    return httpFailure("egress_lost", text, { cause: thrown, retryable: true });
  }
  if (thrown.kind === "too_many_streams") {
    const text = "Cannot fetch: too many requests are under way";
    return httpFailure("upstream_failed", text, { cause: thrown, retryable: true });
  }
  return httpFailure("upstream_failed", thrown.message, { cause: thrown });
}
