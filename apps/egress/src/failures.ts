import { Failure } from "@capsem/base";
import { type HttpFailureKind, httpFailure } from "@capsem/net";
import { EGRESS_LIMITS } from "./limits.ts";

/** OpenSSL's words for a chain that it does not trust, and Node's own. */
const OF_TLS =
  /^(ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|SELF_SIGNED_CERT|DEPTH_ZERO_SELF_SIGNED|INVALID_CA|HOSTNAME_MISMATCH|EPROTO$)/;

const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ECONNRESET: "the server closed the connection",
  EPIPE: "the server closed the connection",
  ETIMEDOUT: "it does not answer",
  EHOSTUNREACH: "there is no way to it",
  ENETUNREACH: "there is no way to it",
  UND_ERR_CONNECT_TIMEOUT: "it does not answer",
  UND_ERR_SOCKET: "the server closed the connection",
  UND_ERR_HEADERS_OVERFLOW: "its headers are too large",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "the answer ended before its end",
};

/** What the network threw, as one of ours. `isConnected`: a request had a connection by then. */
export function networkFailure(
  thrown: unknown,
  host: string,
  isConnected: boolean,
): Failure<HttpFailureKind> {
  if (thrown instanceof Failure) return thrown as Failure<HttpFailureKind>;
  const code = thrown instanceof Error && "code" in thrown ? String(thrown.code) : "";
  const said = thrown instanceof Error ? thrown.message : String(thrown);
  const words = WORDS[code] ?? clean(said === "" ? code : said);
  if (!isConnected && OF_TLS.test(code)) {
    return httpFailure(
      "tls_failed",
      `Cannot connect to ${host}: its certificate or TLS is refused (${words})`,
      {
        cause: thrown,
      },
    );
  }
  if (!isConnected) {
    return httpFailure("connect_failed", `Cannot connect to ${host}: ${words}`, {
      cause: thrown,
      retryable: true,
    });
  }
  return httpFailure("upstream_failed", `Cannot fetch from ${host}: ${words}`, { cause: thrown });
}

/** A library's words may quote what a server sent. */
function clean(text: string): string {
  return text.replace(/[\p{Cc}\p{Surrogate}]+/gu, " ").slice(0, EGRESS_LIMITS.errorCharactersMax);
}
