import { type Deferred, defer, Failure, ignore, sleep, within } from "@capsem/base";
import { vmmFailure } from "./error.ts";
import { RUN_STATE_POLL_MS } from "./limits.ts";
import type { Qmp } from "./qmp.ts";
import { isObject } from "./qmp-line.ts";

/**
 * Begins a migration in either direction by `begin`, then waits for its end and for the run state that
 * follows: `cont` between the two is refused.
 *
 * `x-ignore-shared` leaves the memory out of the stream, as it is in a descriptor already. It must be the
 * same on both sides: the stream's format depends on it.
 */
export async function migrate(
  qmp: Qmp,
  runState: "paused" | "postmigrate",
  timeoutMs: number,
  begin: () => Promise<void>,
): Promise<void> {
  const done = defer<void>();
  ignore(done.promise);
  const stopListening = qmp.on("MIGRATION", ({ status }) => settle(done, status));
  const over = qmp.ended.then((failure) => {
    throw failure ?? vmmFailure("hypervisor_exit", "Cannot migrate: the hypervisor has ended");
  });
  ignore(over);
  const giveUp = new AbortController();
  const work = async () => {
    // Without `events` the end of a migration would have to be polled.
    const capabilities = ["events", "x-ignore-shared"].map((capability) => ({ capability, state: true }));
    await qmp.call("migrate-set-capabilities", { capabilities });
    await begin();
    await Promise.race([done.promise, over]);
    await awaitRunState(qmp, runState, giveUp.signal);
  };
  try {
    const late = () => vmmFailure("hypervisor_timeout", `Cannot migrate: not done after ${timeoutMs} ms`);
    await within(work(), timeoutMs, late);
  } catch (thrown) {
    giveUp.abort();
    throw await withReason(qmp, thrown);
  } finally {
    stopListening();
  }
}

function settle(done: Deferred<void>, status: unknown): void {
  if (status === "completed") done.resolve();
  if (status === "failed" || status === "cancelled") {
    done.reject(vmmFailure("hypervisor_refused", `Cannot migrate: ${status}`));
  }
}

async function awaitRunState(qmp: Qmp, wanted: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const answer = await qmp.call("query-status");
    if (isObject(answer) && answer.status === wanted) return;
    await sleep(RUN_STATE_POLL_MS, signal);
  }
}

/** A failed event says nothing; QEMU keeps the reason for who asks. */
async function withReason(qmp: Qmp, thrown: unknown): Promise<unknown> {
  if (!(thrown instanceof Failure) || thrown.kind !== "hypervisor_refused" || qmp.isOver) return thrown;
  const answer = await qmp.call("query-migrate").catch(() => undefined);
  const reason = isObject(answer) ? answer["error-desc"] : undefined;
  if (typeof reason !== "string") return thrown;
  return vmmFailure("hypervisor_refused", `Cannot migrate: ${reason}`, { cause: thrown });
}
