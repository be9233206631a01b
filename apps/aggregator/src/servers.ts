import type { ProxyServer } from "@capsem/api";
import { Failure } from "@capsem/base";
import type { HttpClient } from "@capsem/net";
import { UPSTREAM_LIMITS } from "./limits.ts";
import type { CircuitPowers } from "./upstream/circuit.ts";
import { Upstream, type UpstreamEvents } from "./upstream/upstream.ts";

export interface ServersOptions extends CircuitPowers {
  readonly http: HttpClient;
  readonly events: UpstreamEvents;
}

/** The declared servers. */
export class Servers {
  readonly #options: ServersOptions;
  #byName: ReadonlyMap<string, Upstream> = new Map();
  readonly #leaving = new Set<Upstream>();
  #generation = 0;

  constructor(options: ServersOptions) {
    this.#options = options;
  }

  /**
   * Takes another set, in one step: a call finds the old one or the new one. What did not change keeps its session; what
   * is gone or changed ends its calls first. An older generation than the last is none.
   */
  set(generation: number, servers: readonly ProxyServer[]): void {
    if (generation < this.#generation) return;
    if (servers.length > UPSTREAM_LIMITS.serversMax) {
      throw new Failure(
        "invalid_input",
        `Cannot take ${servers.length} servers: at most ${UPSTREAM_LIMITS.serversMax}`,
      );
    }
    const old = this.#byName;
    const next = new Map<string, Upstream>();
    for (const server of servers) {
      const held = old.get(server.name);
      const isSame = held !== undefined && sameServer(held.server, server);
      next.set(server.name, isSame ? held : new Upstream({ ...this.#options, server }));
    }
    this.#generation = generation;
    this.#byName = next;
    for (const [name, upstream] of old) if (next.get(name) !== upstream) this.#leave(upstream);
  }

  /** Throws "not_found". */
  get(name: string): Upstream {
    const upstream = this.#byName.get(name);
    if (upstream === undefined)
      throw new Failure("not_found", `Cannot use server "${name}": it is not declared`);
    return upstream;
  }

  /** Ends all sessions at their servers. */
  async close(): Promise<void> {
    const all = [...this.#byName.values(), ...this.#leaving];
    this.#byName = new Map();
    await Promise.all(all.map((upstream) => upstream.close()));
  }

  #leave(upstream: Upstream): void {
    this.#leaving.add(upstream);
    upstream.retire(() => this.#leaving.delete(upstream));
  }
}

/** A time limit is of calls: it needs no other session. */
function sameServer(left: ProxyServer, right: ProxyServer): boolean {
  return left.url === right.url && left.transport === right.transport && left.protocol === right.protocol;
}
