import { Failure } from "@capsem/base";
import type { Peer } from "@capsem/rpc";
import { APP_LIMITS, UPSTREAM_LIMITS } from "./limits.ts";
import type { Health, UpstreamEvents } from "./upstream/upstream.ts";

type What = "tools" | "resources" | "prompts" | "resource";

interface Change {
  readonly server: string;
  readonly what: What;
  readonly uri?: string;
}

/**
 * What the proxy is told without having asked. Changes of a little while leave together and once each; what a server
 * says too often is dropped, so that none keeps the others' words from the proxy.
 */
export class ProxyEvents implements UpstreamEvents {
  readonly #now: () => number;
  readonly #changes = new Map<string, Map<string, Change>>();
  readonly #logs = new Map<string, { second: number; count: number }>();
  readonly #health = new Map<string, { state: Health; error: string | null }>();
  #peer: Peer | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** The proxy of this moment. It is told how all servers are that were asked. */
  attach(peer: Peer): void {
    this.#peer = peer;
    for (const [server, { state, error }] of this.#health)
      this.#tell("server.health", { server, state, error });
  }

  detach(peer: Peer): void {
    if (this.#peer === peer) this.#peer = undefined;
  }

  /** What is remembered of servers that are no longer declared is forgotten. */
  keep(servers: ReadonlySet<string>): void {
    for (const kept of [this.#changes, this.#logs, this.#health]) {
      for (const name of [...kept.keys()]) if (!servers.has(name)) kept.delete(name);
    }
  }

  changed(server: string, what: What, uri?: string): void {
    let changes = this.#changes.get(server);
    if (changes === undefined) {
      changes = new Map();
      this.#changes.set(server, changes);
    }
    const key = uri === undefined ? what : `${what} ${uri}`;
    if (changes.size >= UPSTREAM_LIMITS.changesMax && !changes.has(key) && what === "resource") return;
    changes.set(key, { server, what, ...(uri === undefined ? {} : { uri }) });
    this.#timer ??= setTimeout(() => this.#flush(), UPSTREAM_LIMITS.changesDelayMs);
  }

  health(server: string, state: Health, error: string | null): void {
    this.#health.set(server, { state, error });
    this.#tell("server.health", { server, state, error });
  }

  log(server: string, paramsText: string): void {
    const second = Math.floor(this.#now() / 1_000);
    const last = this.#logs.get(server);
    const count = last?.second === second ? last.count + 1 : 1;
    this.#logs.set(server, { second, count });
    if (count <= UPSTREAM_LIMITS.logsPerSecond) this.#tell("server.log", { server, params: paramsText });
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#peer = undefined;
  }

  #flush(): void {
    this.#timer = undefined;
    for (const changes of this.#changes.values()) {
      for (const change of changes.values()) this.#tell("server.changed", change);
    }
    this.#changes.clear();
  }

  #tell(method: string, params: unknown): void {
    this.#peer?.call(method, params, { timeoutMs: APP_LIMITS.eventTimeoutMs }).catch((thrown: unknown) => {
      // A proxy that is gone asks again when it is there; one that is slow has lost a word.
      if (!(thrown instanceof Failure)) throw thrown;
    });
  }
}
