import { Socket } from "node:net";
import type { SecureContext } from "node:tls";
import { EGRESS_CONTROL_METHODS, EGRESS_SERVICE_METHODS, type WorkerPlan } from "@capsem/api";
import { Failure, messageOf, Slots, within } from "@capsem/base";
import type { Seal } from "@capsem/jail";
import type { Native } from "@capsem/native";
import { createPeer, type Handler, type Peer } from "@capsem/rpc";
import type { Log } from "@capsem/worker";
import { readGrants } from "@capsem/worker";
import { Clients } from "./clients.ts";
import type { AdmissionRequest, DiallerParts } from "./dialler.ts";
import { HttpPool } from "./http-pool.ts";
import type { Admission } from "./lease.ts";
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
  const clients = new Clients({ dialling: (client) => dialling(client, service, parts), log, onFault });
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
  { secureContext, monotonicMs, log }: LifeParts,
): DiallerParts {
  const slots = new Slots(EGRESS_LIMITS.admissionsMax, EGRESS_LIMITS.admissionsWaitingMax);
  return {
    admit: (request, signal) => admit(service, slots, client, request, signal),
    done: (end) => {
      service
        .call("egress.done", end, { timeoutMs: EGRESS_LIMITS.doneTimeoutMs })
        .catch((thrown: unknown) => {
          // Whose leases are open when this process ends is known to the service.
          log("warning", "the end of a lease was not taken", { lease: end.lease, cause: messageOf(thrown) });
        });
    },
    openPool: (options) => HttpPool.open({ ...options, secureContext }),
    nowMs: monotonicMs,
  };
}

async function admit(
  service: Peer,
  slots: Slots,
  client: string,
  { server, url, method, headers, traceId, timeoutMs }: AdmissionRequest,
  signal: AbortSignal | undefined,
): Promise<Admission> {
  const place = slots.take(signal);
  if (place === null) {
    throw new Failure("upstream_failed", "Cannot fetch: too many requests wait to be admitted", {
      retryable: true,
    });
  }
  const leave = await place;
  try {
    const params = { client, server, url, method, headers, trace_id: traceId };
    const answer = await service.call("egress.admit", params, {
      // A person may be asked about one that rules judge: its caller's time counts.
      ...(server !== null
        ? { timeoutMs: EGRESS_LIMITS.admitTimeoutMs }
        : timeoutMs === null
          ? {}
          : { timeoutMs }),
      ...(signal === undefined ? {} : { signal }),
    });
    return EGRESS_SERVICE_METHODS["egress.admit"].result.parse(answer);
  } finally {
    leave();
  }
}

async function revoke(clients: Clients, raw: unknown): Promise<Record<string, never>> {
  const { client, server } = EGRESS_CONTROL_METHODS["egress.revoke"].params.parse(raw);
  clients.revoke(client, server);
  return {};
}
