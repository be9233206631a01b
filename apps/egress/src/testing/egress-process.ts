// The real process, started as the service starts it, with a script for the service; for tests and benchmarks.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { ContractParams, EGRESS_SERVICE_METHODS } from "@capsem/api";
import { createHttpClient, type HttpClient } from "@capsem/net";
import { createPeer, type Handler, type Peer } from "@capsem/rpc";
import {
  confinedWords,
  GRANTS_FD,
  grantedPaths,
  SERVICE_FD,
  type Served,
  serveReady,
  startWorker,
  type WorkerProcess,
} from "@capsem/worker/testing";
import { buildSync } from "esbuild";
import { buildNative } from "../../../../packages/native/build.mjs";
import { CERTIFICATE_FILES } from "../certificates.ts";
import type { Admission, LeaseEnd } from "../lease.ts";

const root = resolve(import.meta.dirname, "../../../..");

export type Asked = ContractParams<typeof EGRESS_SERVICE_METHODS, "egress.admit">;

/** Compiles the program of this moment; `remove` when it is no more needed. */
export async function buildEgress(): Promise<{ bundle: string; remove: () => void }> {
  await buildNative(root, join(root, "dist"));
  const folder = mkdtempSync(join(tmpdir(), "egress-"));
  const bundle = join(folder, "egress.cjs");
  buildSync({
    ...{
      entryPoints: [join(root, "apps/egress/src/main.ts")],
      outfile: bundle,
      bundle: true,
      platform: "node",
    },
    ...{ format: "cjs", target: "node20", logLevel: "error", absWorkingDir: root },
    // The addon lies elsewhere than the bundle.
    define: { __dirname: JSON.stringify(join(root, "dist")) },
  });
  return { bundle, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

export interface EgressOptions {
  readonly bundle: string;
  readonly admit?: (asked: Asked, signal: AbortSignal) => Promise<Admission & { event_id: string }>;
  /** In place of the script: what a service serves. */
  readonly handlers?: (peer: Pick<Peer, "call">) => Readonly<Record<string, Handler>>;
  /** Without the launcher, and without what it does. */
  readonly unconfined?: boolean;
  /** Instead of the plan. */
  readonly input?: string;
}

export interface EgressProcess extends Omit<WorkerProcess<Served>, "grant"> {
  readonly service: Peer;
  readonly ends: LeaseEnd[];
  /** A client of that name, as one of its neighbours has it. */
  grant(name: string, generation?: number): { client: HttpClient; peer: Peer };
}

export function startEgress(options: EgressOptions): EgressProcess {
  const { bundle, admit, handlers, unconfined = false, input } = options;
  const reads = grantedPaths(bundle);
  const certificates = CERTIFICATE_FILES.filter((path) => existsSync(path));
  const words = unconfined
    ? { file: process.execPath, args: [bundle] }
    : confinedWords(bundle, {
        grants: { ...reads, read: [...reads.read, ...certificates] },
        ...{ openFilesMax: 4_096, netNamespace: "off", mayDial: true },
      });
  const plan = {
    ...{ kind: "egress" as const, scope: "all", vm: null, allow_unconfined: unconfined },
    descriptors: { service: SERVICE_FD, grants: GRANTS_FD },
  };
  const ends: LeaseEnd[] = [];
  const started = startWorker({ words, plan, input }, (duplex) => {
    const served = serveReady(duplex, {
      "egress.admit": (params, { signal }) => {
        if (admit === undefined) throw new Error("nothing is admitted");
        return admit(params as Asked, signal);
      },
      "egress.done": async (params) => {
        ends.push(params as LeaseEnd);
        return {};
      },
      ...handlers?.({ call: (...asked) => served.peer.call(...asked) }),
    });
    return served;
  });
  return {
    ...{ ...started, service: started.served.peer, ends },
    grant(name, generation = 1) {
      const peer = createPeer({ role: "host", duplex: started.grant({ kind: "client", name, generation }) });
      return { peer, client: createHttpClient({ peer: () => peer }) };
    },
  };
}
