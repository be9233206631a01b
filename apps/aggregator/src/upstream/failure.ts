import { Failure, type FailureFacts } from "@capsem/base";
import { UPSTREAM_LIMITS } from "../limits.ts";

/**
 * What a server did that no answer can be made of, in words that follow "it". Inside, a failure's message is such
 * words; whoever knows the server's name makes a sentence of it (`withServer`).
 */
export function rude(words: string, options: { cause?: unknown; detail?: string } = {}): Failure {
  return new Failure("upstream_failed", `it ${words}`, options);
}

/** The session is not known to the server: what was sent with it was certainly not done. */
export function expired(): Failure {
  return new Failure("session_expired", "it ended the session");
}

/** Kinds of @capsem/net after which the same server is not worth asking for a while. */
const UNREACHABLE: ReadonlySet<string> = new Set(["dns_failed", "connect_failed", "tls_failed", "timeout"]);
const KEPT: ReadonlySet<string> = new Set(["upstream_failed", "timeout", "cancelled", "session_expired"]);

/** What a request by way of egress ended with, as one of ours: its own kind becomes the detail. A bug stays one. */
export function asUpstreamFailure(thrown: unknown): Failure {
  if (!(thrown instanceof Failure)) throw thrown;
  const message = thrown.message.replace(/^Cannot [^:]{1,64}: /, "");
  const isKept = KEPT.has(thrown.kind);
  const detail = isKept ? (thrown.detail ?? thrown.kind) : thrown.kind;
  const options = { cause: thrown, detail, retryable: thrown.retryable, ...factsOf(thrown) };
  return new Failure(isKept ? thrown.kind : "upstream_failed", message, options);
}

/** It could not be reached, or did not answer in time. */
export function isUnreachable(failure: Failure): boolean {
  return failure.kind === "timeout" || UNREACHABLE.has(failure.detail ?? failure.kind);
}

/** It was never asked: rules forbid it, or nobody was there to ask it. That says nothing about the server. */
export function isOurs(failure: Failure): boolean {
  const kind = failure.detail ?? failure.kind;
  return kind === "policy" || kind === "egress_lost" || kind === "cancelled" || kind === "not_found";
}

/** For people: which server, and what is wrong with it. */
export function withServer(server: string, thrown: unknown): Failure {
  if (!(thrown instanceof Failure)) throw thrown;
  const kind = thrown.kind === "timeout" || thrown.kind === "cancelled" ? thrown.kind : "upstream_failed";
  const { detail, retryable } = thrown;
  const options = {
    ...{ cause: thrown, retryable, ...factsOf(thrown) },
    ...(detail === undefined ? {} : { detail }),
  };
  return new Failure(kind, `Cannot use server "${server}": ${thrown.message}`, options);
}

/** Which rule it was, where one forbade it. */
function factsOf({ facts }: Failure): { readonly facts?: FailureFacts } {
  return facts === undefined ? {} : { facts };
}

/** A server's own words inside ours: on one line, and not many. */
export function quoted(words: string): string {
  const line = words.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\s]+/gu, " ").trim();
  const { wordsCharactersMax } = UPSTREAM_LIMITS;
  return line.length > wordsCharactersMax ? `${line.slice(0, wordsCharactersMax)}…` : line;
}

/** For work whose failures are told elsewhere. A bug stays one. */
export function inBackground(work: Promise<unknown>): void {
  work.catch((thrown: unknown) => {
    if (!(thrown instanceof Failure)) throw thrown;
  });
}
