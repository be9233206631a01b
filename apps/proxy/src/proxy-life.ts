import { Socket } from "node:net";
import type { WorkerPlan } from "@capsem/api";
import { messageOf } from "@capsem/base";
import type { Seal } from "@capsem/jail";
import type { Native } from "@capsem/native";
import { createPeer, type Peer } from "@capsem/rpc";
import type { MuxStream } from "@capsem/wire";
import type { Log } from "@capsem/worker";
import { readGrants } from "@capsem/worker";
import { TrafficDoor } from "./down/accept.ts";
import { PROXY_LIMITS } from "./limits.ts";
import { McpProxy } from "./mcp-proxy.ts";
import type { Clock } from "./parts.ts";
import { ServiceLink } from "./service-link.ts";
import { serveLane } from "./traffic-lane.ts";

export interface LifeParts {
  readonly plan: WorkerPlan;
  readonly seal: Seal;
  readonly native: Pick<Native, "receiveDescriptorsLater" | "closeDescriptor">;
  readonly log: Log;
  readonly clock: Clock;
  readonly version: string;
  readonly cores: number;
  readonly random: (bytes: number) => Uint8Array;
  readonly digest: (text: string) => string;
  /** Resolves when it is told to end from outside. */
  readonly told: Promise<void>;
}

/** The life of one proxy: seal, channel to the service, grants, lane, and an end with any of what it lives on. */
export async function live(parts: LifeParts): Promise<void> {
  const { plan, log, told, native } = parts;
  const { missing, notes } = await close(parts);
  const { proxy, service } = openService(parts);
  const ending = new AbortController();
  const granted = readGrants({
    ...{ fd: plan.descriptors.grants, native, log, signal: ending.signal },
    onGrant: (grant, fd) => proxy.adopt(grant, socketOf(fd)),
  });
  const door = new TrafficDoor({
    rail: proxy.rail,
    newSessionId: () => Buffer.from(parts.random(SESSION_ID_BYTES)).toString("hex"),
    nowMs: parts.clock.monotonicMs,
    report: (thrown) => {
      const cause = thrown instanceof Error ? thrown.stack : messageOf(thrown);
      log("error", "a stream was lost for a bug", { cause });
    },
  });
  // The lane waits for the guest's marker before anybody is told of a proxy that is ready.
  const lane = openLane(parts, door);
  await service
    .call("worker.ready", { unconfined: missing, notes }, { timeoutMs: PROXY_LIMITS.readyTimeoutMs })
    .catch((thrown: unknown) => {
      log("error", "the service does not answer", { cause: messageOf(thrown) });
      service.close();
    });
  const why = await Promise.race([
    service.ended.then(() => "the service's channel"),
    told.then(() => "a signal"),
    lane,
  ]);
  ending.abort();
  door.close();
  await proxy.close();
  service.close();
  await granted;
  log("info", "proxy ended", { by: why });
}

const SESSION_ID_BYTES = 24;

async function close({ seal, plan, clock, log }: LifeParts) {
  const startedMs = clock.monotonicMs();
  const { missing, notes, probes } = await seal.close({ grantsSocket: plan.descriptors.grants });
  const took_ms = Math.round(clock.monotonicMs() - startedMs);
  if (notes.length > 0) log("warning", "a second wall is missing", { notes });
  if (missing.length > 0) log("warning", "proxy is not confined", { missing });
  else log("info", "proxy confined", { scope: plan.scope, probes: probes.length, took_ms });
  return { missing: [...missing], notes: [...notes] };
}

function openService({ plan, log, clock, version, cores, random, digest }: LifeParts) {
  let peer: Peer | undefined;
  const service = {
    call: ((...given) => link().call(...given)) as ServiceLink["call"],
  };
  const link = () => {
    if (peer === undefined) throw new Error("the service is called before its channel is open");
    return new ServiceLink(peer);
  };
  const proxy = new McpProxy({ vm: plan.vm, service, version, cores, clock, random, digest, log });
  peer = createPeer({
    role: "guest",
    duplex: socketOf(plan.descriptors.service),
    handlers: proxy.handlers(),
    onInternalError: (method, thrown) => {
      const cause = thrown instanceof Error ? thrown.stack : String(thrown);
      log("error", "a call failed", { method, cause });
    },
  });
  return { proxy, service: peer };
}

/** Without a lane there is none that ends. */
function openLane({ plan, log }: LifeParts, door: TrafficDoor): Promise<string> {
  const { descriptors, lane: start } = plan;
  if (descriptors.lane === undefined || start === undefined) return new Promise(() => undefined);
  const onClient = (stream: MuxStream) => void door.accept(stream);
  return serveLane({ duplex: socketOf(descriptors.lane), start, onClient, log });
}

function socketOf(fd: number): Socket {
  return new Socket({ fd, readable: true, writable: true });
}
