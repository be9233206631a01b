import { Socket } from "node:net";
import type { WorkerGrant, WorkerPlan } from "@capsem/api";
import { ignore, messageOf, within } from "@capsem/base";
import type { Seal } from "@capsem/jail";
import { createHttpClient } from "@capsem/net";
import { createPeer, type Peer } from "@capsem/rpc";
import type { Log } from "@capsem/worker";
import { type GrantSocket, readGrants } from "@capsem/worker";
import { EgressLink } from "./egress-link.ts";
import { APP_LIMITS } from "./limits.ts";
import { methodsFor, type ProxyMethods } from "./methods.ts";
import { ProxyEvents } from "./proxy-events.ts";
import { Servers } from "./servers.ts";

export interface LifeParts {
  readonly plan: WorkerPlan;
  readonly seal: Seal;
  readonly native: GrantSocket;
  readonly log: Log;
  readonly now: () => number;
  readonly random: () => number;
  /** Resolves when it is told to end from outside. */
  readonly told: Promise<void>;
}

/** The life of one aggregator: seal, channels, and an end in order when the service's channel has ended. */
export async function live(parts: LifeParts): Promise<void> {
  const { plan, seal, log, now, random, told } = parts;
  const { missing, notes, probes } = await seal.close({ grantsSocket: plan.descriptors.grants });
  if (notes.length > 0) log("warning", "a second wall is missing", { notes });
  if (missing.length > 0) log("warning", "aggregator is not confined", { missing });
  else log("info", "aggregator confined", { probes: probes.length });
  const egress = new EgressLink();
  const events = new ProxyEvents(now);
  const http = createHttpClient({ peer: (signal) => egress.peer(signal) });
  const servers = new Servers({ http, events, now, random });
  const service = openChannel(plan.descriptors.service, "guest", undefined, log);
  const end = new AbortController();
  const neighbours = new Neighbours({ egress, events, methods: methodsFor(servers, events), log });
  const grants = readGrants({
    ...{ fd: plan.descriptors.grants, native: parts.native, log, signal: end.signal },
    onGrant: (grant, fd) => neighbours.take(grant, fd),
  });
  const ready = { unconfined: [...missing], notes: [...notes] };
  // A service that says nothing is of no use: without its channel all ends.
  ignore(
    service
      .call("worker.ready", ready, { timeoutMs: APP_LIMITS.readyTimeoutMs })
      .catch(() => service.close()),
  );
  await Promise.race([service.ended, told]);
  end.abort();
  const closed = within(servers.close(), APP_LIMITS.endTimeoutMs);
  ignore(closed);
  await Promise.allSettled([closed, grants]);
  events.close();
  neighbours.close();
  service.close();
  log("info", "aggregator ended");
}

interface NeighboursParts {
  readonly egress: EgressLink;
  readonly events: ProxyEvents;
  readonly methods: ProxyMethods;
  readonly log: Log;
}

/** Channels to the processes beside it; of each kind the newest generation counts. */
class Neighbours {
  readonly #parts: NeighboursParts;
  readonly #generations = new Map<string, number>();
  #proxy: Peer | undefined;

  constructor(parts: NeighboursParts) {
    this.#parts = parts;
  }

  take({ kind, generation }: WorkerGrant, fd: number): void {
    const { egress, events, methods, log } = this.#parts;
    const isNew = generation > (this.#generations.get(kind) ?? 0);
    if (!isNew || (kind !== "egress" && kind !== "proxy")) {
      new Socket({ fd }).destroy();
      log("warning", "a grant is of no use", { kind, generation });
      return;
    }
    this.#generations.set(kind, generation);
    // On each pair the one nearer to the guest is the host.
    if (kind === "egress") {
      egress.attach(openChannel(fd, "host", undefined, log));
      return;
    }
    const peer = openChannel(fd, "guest", methods, log);
    this.#proxy?.close();
    this.#proxy = peer;
    events.attach(peer);
    void peer.ended.then(() => events.detach(peer));
  }

  close(): void {
    this.#proxy?.close();
    this.#parts.egress.close();
  }
}

function openChannel(fd: number, role: "host" | "guest", methods: ProxyMethods | undefined, log: Log): Peer {
  return createPeer({
    role,
    duplex: new Socket({ fd, readable: true, writable: true }),
    ...methods,
    onInternalError: (method, thrown) => {
      const cause = thrown instanceof Error ? thrown.stack : messageOf(thrown);
      log("error", "a call failed", { method, cause });
    },
  });
}
