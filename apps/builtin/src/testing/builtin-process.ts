// The built program, started and sealed as the service starts it, with a proxy and an egress of the test's beside it.
import { type HttpServe, httpMethods } from "@capsem/net";
import { createPeer, type Peer } from "@capsem/rpc";
import {
  builtWorker,
  confinedWords,
  GRANTS_FD,
  SERVICE_FD,
  type Served,
  serveReady,
  startWorker,
  type WorkerProcess,
} from "@capsem/worker/testing";
import { dial } from "./dial.ts";

export interface BuiltinProcess extends WorkerProcess<Served> {
  /** The caller's end of a new pair, granted as `proxy`. */
  grantProxy(generation: number): Peer;
  grantEgress(generation: number, serve?: HttpServe): Peer;
}

/** `input` instead of the plan. */
export function startBuiltin(input?: string): BuiltinProcess {
  const words = confinedWords(builtWorker("builtin"));
  const plan = {
    ...{ kind: "builtin" as const, scope: "host", vm: null, allow_unconfined: false },
    descriptors: { service: SERVICE_FD, grants: GRANTS_FD },
  };
  const started = startWorker({ words, plan, input }, serveReady);
  return {
    ...started,
    grantProxy: (generation) =>
      createPeer({ role: "host", duplex: started.grant({ kind: "proxy", name: "host", generation }) }),
    grantEgress: (generation, serve = dial) =>
      createPeer({
        role: "guest",
        duplex: started.grant({ kind: "egress", name: "egress", generation }),
        streaming: httpMethods(serve),
      }),
  };
}
