import { Socket } from "node:net";
import type { SecureContext } from "node:tls";
import { EGRESS_CONTROL_METHODS, type WorkerPlan } from "@capsem/api";
import { messageOf, Slots, within } from "@capsem/base";
import type { Seal } from "@capsem/jail";
import type { Native } from "@capsem/native";
import { createPeer, type Handler, type Peer } from "@capsem/rpc";
import type { Log } from "@capsem/worker";
import { readGrants } from "@capsem/worker";
import { admit } from "./admission.ts";
import { Clients } from "./clients.ts";
import type { DiallerParts } from "./dialler.ts";
import { HttpPool } from "./http-pool.ts";
import type { LeaseEnd } from "./lease.ts";
import { EGRESS_LIMITS } from "./limits.ts";

export interface LifeParts {
  readonly plan: WorkerPlan;
  readonly native: Pick<Native, "receiveDescriptorsLater" | "closeDescriptor">;
  readonly seal: Seal;
  readonly secureContext: SecureContext;
  readonly log: Log;
  readonly monotonicMs: () => number;
  /** Resolves when it is told to end from outside. */
  readonly told: Promise<void>;
}

/** The life of the one egress process: seal, channels, and an end when the service's has ended. */
export async function live(parts: LifeParts): Promise<void> {
  const { plan, native, seal, log, monotonicMs, told } = parts;
  const startedMs = monotonicMs();
  const { missing, notes, probes } = await seal.close({ grantsSocket: plan.descriptors.grants });
  if (missing.length > 0) log("warning", "egress is not confined", { missing });
  else
    log("info", "egress confined", { probes: probes.length, took_ms: Math.round(monotonicMs() - startedMs) });
  const onFault = (method: string, thrown: unknown) => {
    const cause = thrown instanceof Error ? thrown.stack : String(thrown);
    log("error", "a call failed", { method, cause });
  };
  const service = createPeer({
    role: "guest",
    duplex: new Socket({ fd: plan.descriptors.service, readable: true, writable: true }),
    handlers: { "egress.revoke": (raw) => revoke(clients, raw) } satisfies Record<string, Handler>,
    onInternalError: onFault,
  });
  let leases = 0;
  const newLease = () => {
    leases += 1;
    return `lease_${leases}`;
  };
  const clients = new Clients({
    dialling: (client) => dialling(client, service, newLease, parts),
    log,
    onFault,
  });
  const stop = new AbortController();
  const ready = { unconfined: [...missing], notes: [...notes] };
  await service.call("worker.ready", ready, { timeoutMs: EGRESS_LIMITS.readyTimeoutMs });
  const granted = readGrants({
    ...{ fd: plan.descriptors.grants, native, log, signal: stop.signal },
    accepts: ({ kind }) => kind === "client",
    onGrant: (grant, fd) => clients.take(grant, fd),
  });
  await Promise.race([service.ended, told]);
  stop.abort();
  await clients.end();
  await within(granted, EGRESS_LIMITS.endTimeoutMs).catch((thrown: unknown) => {
    log("warning", "grants were still waited for", { cause: messageOf(thrown) });
  });
  service.close();
  await service.ended;
  log("info", "egress ended");
}

/** What one client's dialler asks of the service. Who asks is known by the channel, never by what it says. */
function dialling(
  client: string,
  service: Peer,
  newLease: () => string,
  { secureContext, monotonicMs, log }: LifeParts,
): DiallerParts {
  const slots = new Slots(EGRESS_LIMITS.admissionsMax, EGRESS_LIMITS.admissionsWaitingMax);
  const done = (end: LeaseEnd) => {
    service.call("egress.done", end, { timeoutMs: EGRESS_LIMITS.doneTimeoutMs }).catch((thrown: unknown) => {
      // Whose leases are open when this process ends is known to the service.
      log("warning", "the end of a lease was not taken", { lease: end.lease, cause: messageOf(thrown) });
    });
  };
  const admission = { call: service.call, done, slots, newLease };
  return {
    admit: (request, signal) => admit(admission, client, request, signal),
    done,
    openPool: (options) => HttpPool.open({ ...options, secureContext }),
    nowMs: monotonicMs,
  };
}

async function revoke(clients: Clients, raw: unknown): Promise<Record<string, never>> {
  const { client, server } = EGRESS_CONTROL_METHODS["egress.revoke"].params.parse(raw);
  clients.revoke(client, server);
  return {};
}
