// The built aggregator, started and sealed as the service starts it, with a proxy and an egress of the test's beside it.
import { type HttpClient, type HttpServe, httpMethods } from "@capsem/net";
import { createPeer, type Handler, type Peer } from "@capsem/rpc";
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

export interface AggregatorProcess extends WorkerProcess<Served> {
  grantProxy(generation: number, handlers?: Readonly<Record<string, Handler>>): Peer;
  grantEgress(generation: number, http: HttpClient): Peer;
}

/** `input` instead of the plan. */
export function startAggregator(input?: string): AggregatorProcess {
  const words = confinedWords(builtWorker("aggregator"));
  const plan = {
    ...{ kind: "aggregator" as const, scope: "host", vm: null, allow_unconfined: false },
    descriptors: { service: SERVICE_FD, grants: GRANTS_FD },
  };
  const started = startWorker({ words, plan, input }, serveReady);
  return {
    ...started,
    grantProxy: (generation, handlers = {}) =>
      createPeer({
        role: "host",
        duplex: started.grant({ kind: "proxy", name: "host", generation }),
        handlers,
      }),
    grantEgress: (generation, http) =>
      createPeer({
        role: "guest",
        duplex: started.grant({ kind: "egress", name: "egress", generation }),
        streaming: httpMethods(servedBy(http)),
      }),
  };
}

/** What egress does, done by a client of the test's. */
function servedBy(http: HttpClient): HttpServe {
  return async ({ server, url, method, headers, body, timeout_ms: timeoutMs }, signal) => {
    const response = await http.fetch({ server, url, method, headers, body, timeoutMs, signal });
    return { head: { status: response.status, headers: [...response.headers] }, body: response.body };
  };
}
