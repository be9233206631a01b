import { Socket } from "node:net";
import type { WorkerPlan } from "@capsem/api";
import { messageOf } from "@capsem/base";
import type { Seal } from "@capsem/jail";
import type { Native } from "@capsem/native";
import { createHttpClient } from "@capsem/net";
import { createPeer } from "@capsem/rpc";
import type { Log } from "@capsem/worker";
import { readGrants } from "@capsem/worker";
import { BUILTIN_LIMITS } from "./limits.ts";
import { builtinMethods } from "./methods.ts";
import { Neighbours } from "./neighbours.ts";
import { PagePool } from "./page-pool.ts";

export interface LifeParts {
  readonly plan: WorkerPlan;
  readonly version: string;
  /** The text of this program, for its threads. */
  readonly program: string;
  readonly seal: Seal;
  readonly native: Pick<Native, "receiveDescriptorsLater" | "closeDescriptor">;
  readonly log: Log;
  readonly now: () => number;
  /** Resolves when it is told to end from outside. */
  readonly told: Promise<void>;
}

/** The life of one process of builtin tools: seal, channel to the service, grants, and its end with that channel. */
export async function live({
  plan,
  version,
  program,
  seal,
  native,
  log,
  now,
  told,
}: LifeParts): Promise<void> {
  const startedAt = now();
  const { service: serviceFd, grants: grantsSocket } = plan.descriptors;
  const { missing, notes, probes } = await seal.close({ grantsSocket });
  if (notes.length > 0) log("warning", "a second wall is missing", { notes });
  if (missing.length > 0) log("warning", "builtin is not confined", { missing });
  else log("info", "builtin confined", { probes: probes.length, took_ms: Math.round(now() - startedAt) });
  const pages = new PagePool({ program });
  const methods = builtinMethods({
    version,
    pages,
    http: createHttpClient({ peer: () => neighbours.egress() }),
    reader: { unzstd: (body, signal) => pages.run("unzstd", { body }, signal) },
    log: (message, thrown) =>
      log("error", message, { cause: thrown instanceof Error ? thrown.stack : String(thrown) }),
  });
  const neighbours = new Neighbours({ ...methods, log });
  const service = createPeer({ role: "guest", duplex: socketOf(serviceFd) });
  const ending = new AbortController();
  const granted = readGrants({
    ...{ fd: grantsSocket, native, log, signal: ending.signal },
    onGrant: (grant, fd) => neighbours.adopt(grant, socketOf(fd)),
  });
  const ready = { unconfined: [...missing], notes: [...notes] };
  await service
    .call("worker.ready", ready, { timeoutMs: BUILTIN_LIMITS.readyTimeoutMs })
    .catch((cause: unknown) => {
      log("error", "the service does not answer", { cause: messageOf(cause) });
      service.close();
    });
  await Promise.race([service.ended, told]);
  ending.abort();
  neighbours.close();
  service.close();
  await Promise.all([granted, pages.close()]);
  log("info", "builtin ended");
}

function socketOf(fd: number): Socket {
  return new Socket({ fd, readable: true, writable: true });
}
