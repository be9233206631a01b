import { Failure } from "@capsem/base";
import { isOurs, isUnreachable } from "./failure.ts";
import { openLegacyHttp } from "./legacy-http.ts";
import { openLegacySse } from "./legacy-sse.ts";
import { openModernHttp } from "./modern-http.ts";
import type { Session, SessionParts, Way } from "./session.ts";

const OPENERS: Readonly<Record<Way, (parts: SessionParts, signal: AbortSignal) => Promise<Session>>> = {
  modern: openModernHttp,
  http: openLegacyHttp,
  sse: openLegacySse,
};

/**
 * Finds out how a server is spoken to, within what its declaration allows: the newest first. Whatever a server answers
 * to what it does not know leads to the next way; only one that cannot be reached is not asked again. `known` is tried
 * before all: it was right the last time. Throws what the first of the ways of its era ended with.
 */
export async function openSession(
  parts: SessionParts,
  known: Way | null,
  signal: AbortSignal,
): Promise<Session> {
  const allowed = waysOf(parts);
  const ways =
    known === null || !allowed.includes(known) ? allowed : [known, ...allowed.filter((way) => way !== known)];
  const failures = new Map<Way, Failure>();
  for (const way of ways) {
    try {
      return await OPENERS[way](parts, signal);
    } catch (thrown) {
      if (!(thrown instanceof Failure)) throw thrown;
      // Which step was cut off by its end says less than why it came.
      if (signal.aborted) throw signal.reason;
      if (isOurs(thrown) || (isUnreachable(thrown) && !isSilent(way, thrown))) throw thrown;
      failures.set(way, thrown);
    }
  }
  const [first] = failures.values();
  throw failures.get("http") ?? first ?? new Failure("upstream_failed", "there is no way to speak to it");
}

/** A server that does not know the newest revision may also say nothing at all. */
function isSilent(way: Way, failure: Failure): boolean {
  return way === "modern" && failure.kind === "timeout";
}

function waysOf({ server: { transport, protocol } }: SessionParts): readonly Way[] {
  if (transport === "sse") return ["sse"];
  if (protocol === "modern") return ["modern"];
  const newest: readonly Way[] = protocol === "legacy" ? [] : ["modern"];
  return transport === "http" ? [...newest, "http"] : [...newest, "http", "sse"];
}
