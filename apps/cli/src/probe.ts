import { Failure, within } from "@capsem/base";
import { CapsemError, type Client } from "@capsem/sdk";
import { PROBE_SILENT_MS, PROBE_STOPPED_MS } from "./limits.ts";
import { checkHome } from "./own-home.ts";
import type { Powers } from "./powers.ts";
import { findService } from "./service-pid.ts";

/**
 * True when the service answers, false when nobody listens. One that listens and is silent is an error: at once
 * when its process is stopped, later when it may only be busy.
 */
export async function probe(client: Client, powers: Powers): Promise<boolean> {
  checkHome(powers.home);
  const abort = new AbortController();
  const answer = client.health({ signal: abort.signal, timeoutMs: PROBE_SILENT_MS + 1_000 }).then(
    () => true,
    (thrown: unknown) => {
      if (thrown instanceof CapsemError && thrown.kind === "unavailable") return false;
      throw thrown;
    },
  );
  try {
    return await within(answer, PROBE_STOPPED_MS, late);
  } catch (thrown) {
    if (!isLate(thrown)) throw thrown;
  }
  try {
    const found = findService(powers);
    if (found?.state === "T") throw silent(found.pid, "its process is stopped");
    return await within(answer, PROBE_SILENT_MS - PROBE_STOPPED_MS, late);
  } catch (thrown) {
    if (!isLate(thrown)) throw thrown;
    throw silent(findService(powers)?.pid ?? null, `no answer for ${PROBE_SILENT_MS / 1000} s`);
  } finally {
    abort.abort();
    answer.then(undefined, () => undefined);
  }
}

function late(): Failure {
  return new Failure("late", "late");
}

function isLate(thrown: unknown): boolean {
  return thrown instanceof Failure && thrown.kind === "late";
}

function silent(pid: number | null, why: string): Failure {
  const who = pid === null ? "the service" : `the service (pid ${pid})`;
  const message = `Cannot reach ${who}: ${why}; capsem service stop --force ends it`;
  return new Failure("unresponsive", message, { retryable: true });
}
