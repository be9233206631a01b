import {
  type ContractParams,
  encodeFacts,
  PROXY_METHODS,
  TOOL_SERVER_EVENTS,
  type WorkerGrant,
  type WorkerPlan,
} from "@capsem/api";
import { defer, Failure, ignore } from "@capsem/base";
import type { Digest } from "@capsem/policy";
import type { Handler, Peer, RpcContext } from "@capsem/rpc";
import type { DuplexLike } from "@capsem/wire";
import type { Log } from "@capsem/worker";
import type * as z from "zod";
import { ITEM_KINDS } from "./catalog/catalog.ts";
import { Catalogs } from "./catalog/catalogs.ts";
import { ServerBook } from "./catalog/server-book.ts";
import { Facts } from "./facts.ts";
import { PROXY_LIMITS } from "./limits.ts";
import { Neighbour, type NeighbourKind } from "./neighbour.ts";
import type { Clock } from "./parts.ts";
import { PolicyState } from "./policy-state.ts";
import { ProxyRail } from "./rail/proxy-rail.ts";
import type { ServiceLink } from "./service-link.ts";

export interface McpProxyOptions {
  readonly vm: WorkerPlan["vm"];
  readonly service: Pick<ServiceLink, "call">;
  readonly version: string;
  readonly cores: number;
  readonly clock: Clock;
  readonly random: (bytes: number) => Uint8Array;
  readonly digest: Digest;
  readonly log: Log;
}

type Methods = typeof PROXY_METHODS;
type Events = typeof TOOL_SERVER_EVENTS;
const ALL_KINDS = new Set(ITEM_KINDS);

/** All of a proxy but its process: what the service tells it, its neighbours, and the rail between. */
export class McpProxy {
  readonly rail: ProxyRail;
  readonly #options: McpProxyOptions;
  readonly #policy: PolicyState;
  readonly #book = new ServerBook();
  readonly #facts: Facts;
  readonly #catalogs: Catalogs;
  readonly #neighbours: Readonly<Record<NeighbourKind, Neighbour>>;
  readonly #begun = defer<void>();
  /** As rules see it now: a VM can be renamed. */
  #vm: WorkerPlan["vm"];
  #hasServers = false;
  /** Generation of the servers that the last aggregator was told when it came. */
  #preparedFor = -1;
  #lastSet: Promise<unknown> = Promise.resolve();

  constructor(options: McpProxyOptions) {
    this.#options = options;
    const { service, clock, random, log, version, cores, digest } = options;
    this.#vm = options.vm;
    const vmNow = () => this.#vm;
    this.#policy = new PolicyState(digest);
    this.#facts = new Facts({
      append: (facts, bytes) =>
        service.call(
          "facts.append",
          { ...encodeFacts(facts), bytes },
          { timeoutMs: PROXY_LIMITS.factsTimeoutMs },
        ),
      log,
    });
    this.#neighbours = { aggregator: this.#neighbour("aggregator"), builtin: this.#neighbour("builtin") };
    this.#catalogs = new Catalogs({
      ...{ book: this.#book, neighbours: this.#neighbours, service, clock, log },
      onChanged: (kinds) => this.rail.changed(kinds),
    });
    const parts = {
      ...{ version, service, clock, random, log },
      ...{ policy: this.#policy, facts: this.#facts, book: this.#book },
      ...{ catalogs: this.#catalogs, neighbours: this.#neighbours },
      get vm() {
        return vmNow();
      },
    };
    this.rail = new ProxyRail({ parts, cores, begun: this.#begun.promise });
  }

  /** What the service may ask. */
  handlers(): Readonly<Record<string, Handler>> {
    return {
      ...this.#method("policy.set", async (params) => this.#setPolicy(params)),
      ...this.#method("servers.set", async (params) => this.#setServers(params)),
      ...this.#method("vm.set", async ({ vm }) => {
        this.#vm = vm;
        this.rail.changed(ALL_KINDS);
        return {};
      }),
      ...this.#method("facts.credit", async ({ add, refusing }) => {
        this.#facts.grant(add, refusing);
        return {};
      }),
      ...this.#method("server.look", async ({ server, refresh }) => {
        const catalog = await (refresh ? this.#catalogs.refresh(server) : this.#catalogs.get(server));
        return { tools: catalog.tools.size };
      }),
      ...this.#method("tool.call", async (params, context) => {
        await this.#begun.promise;
        return this.rail.host.call(params, context);
      }),
    };
  }

  /** Owns the duplex. */
  adopt({ kind, generation }: WorkerGrant, duplex: DuplexLike): void {
    if (kind === "aggregator" || kind === "builtin") this.#neighbours[kind].adopt(generation, duplex);
    else duplex.destroy();
  }

  /** What is left to be recorded is on the service's channel when it resolves, the ends of what this cancels as well. */
  async close(): Promise<void> {
    this.rail.close();
    // What was cancelled ends in this turn of the event loop, behind us.
    await new Promise((resolve) => setImmediate(resolve));
    this.#facts.flush();
    for (const neighbour of Object.values(this.#neighbours)) neighbour.close();
  }

  #setPolicy({ user, corp, digest }: ContractParams<Methods, "policy.set">): { digest: string } {
    const isFirst = !this.#policy.isSet;
    this.#policy.set(user, corp, digest);
    this.#begin();
    if (!isFirst) this.rail.changed(ALL_KINDS);
    return { digest };
  }

  /** One after the other: the older set serves until the newer one does. */
  #setServers(params: ContractParams<Methods, "servers.set">): Promise<Record<string, never>> {
    const { reports } = this.#book;
    const set = this.#lastSet.then(() => this.#putServers(params, reports));
    this.#lastSet = set.catch(() => undefined);
    return set;
  }

  async #putServers(given: ContractParams<Methods, "servers.set">, reports: number) {
    const { generation, servers } = given;
    const before = new Map(this.#book.declared.map((server) => [server.name, JSON.stringify(server)]));
    const now = new Map(servers.map((server) => [server.name, JSON.stringify(server)]));
    const others = [...new Set([...before.keys(), ...now.keys()])].filter(
      (name) => before.get(name) !== now.get(name),
    );
    if (others.length > 0) await this.#tellAggregator(generation, servers);
    const hasOtherPins = this.#book.set(given, reports);
    for (const name of others) this.#catalogs.forget(name);
    const isFirst = !this.#hasServers;
    this.#hasServers = true;
    this.#begin();
    if (!isFirst && others.length > 0) this.rail.changed(ALL_KINDS);
    else if (!isFirst && hasOtherPins) this.rail.changed(new Set(["tools"]));
    return {};
  }

  /** One that is lost meanwhile needs it no more; its successor, where it is there already, does. */
  async #tellAggregator(generation: number, servers: ServerBook["declared"]): Promise<void> {
    const { aggregator } = this.#neighbours;
    let told: Peer | undefined;
    while (aggregator.ready !== undefined && aggregator.ready !== told) {
      told = aggregator.ready;
      try {
        await tellServers(told, generation, servers);
      } catch (thrown) {
        if (aggregator.ready === told && !isLost(thrown)) throw thrown;
      }
    }
  }

  #begin(): void {
    if (this.#policy.isSet && this.#hasServers) this.#begun.resolve();
  }

  #neighbour(kind: NeighbourKind): Neighbour {
    const isExternal = kind === "aggregator";
    const { service, log } = this.#options;
    return new Neighbour({
      ...{ kind, log },
      need: (wanted) =>
        service.call("worker.need", { kind: wanted }, { timeoutMs: PROXY_LIMITS.needTimeoutMs }),
      prepare: async (peer) => {
        if (!isExternal) return;
        const { generation, declared } = this.#book;
        await tellServers(peer, generation, declared);
        this.#preparedFor = generation;
      },
      isPrepared: () => !isExternal || this.#preparedFor === this.#book.generation,
      handlers: this.#eventHandlers(),
      onUp: () => this.rail.neighbourUp(isExternal),
      onLost: () => this.rail.neighbourLost(isExternal),
    });
  }

  #eventHandlers(): Readonly<Record<string, Handler>> {
    return {
      ...this.#event("server.changed", async ({ server, what, uri }) => {
        if (what === "resource") {
          if (uri !== undefined) this.rail.resourceUpdated(server, uri);
        } else if (this.#catalogs.peek(server) !== undefined) ignore(this.#catalogs.refresh(server));
        return {};
      }),
      ...this.#event("server.health", async (params) => {
        const { service } = this.#options;
        ignore(service.call("server.health", params, { timeoutMs: PROXY_LIMITS.reportTimeoutMs }));
        // Whoever has listed without it is told when it is there.
        if (params.state === "ok" && this.#catalogs.isMissed(params.server))
          ignore(this.#catalogs.refresh(params.server));
        return {};
      }),
      ...this.#event("server.log", async ({ server, params }) => {
        this.rail.logged(server, params);
        return {};
      }),
    };
  }

  #method<M extends keyof Methods & string>(
    method: M,
    run: (params: ContractParams<Methods, M>, context: RpcContext) => Promise<z.infer<Methods[M]["result"]>>,
  ): Record<string, Handler> {
    const schema: z.ZodType = PROXY_METHODS[method].params;
    return {
      [method]: (raw, context) => run(checked(method, schema, raw) as ContractParams<Methods, M>, context),
    };
  }

  #event<M extends keyof Events & string>(
    method: M,
    run: (params: ContractParams<Events, M>) => Promise<Record<string, never>>,
  ): Record<string, Handler> {
    const schema: z.ZodType = TOOL_SERVER_EVENTS[method].params;
    return { [method]: (raw) => run(checked(method, schema, raw) as ContractParams<Events, M>) };
  }
}

async function tellServers(peer: Peer, generation: number, servers: ServerBook["declared"]): Promise<void> {
  await peer.call("server.set", { generation, servers }, { timeoutMs: PROXY_LIMITS.serverSetTimeoutMs });
}

function isLost(thrown: unknown): boolean {
  return thrown instanceof Failure && thrown.kind === "peer_lost";
}

function checked<T>(method: string, schema: z.ZodType<T>, raw: unknown): T {
  const parsed = schema.safeParse(raw);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const where = issue === undefined ? "" : `${issue.path.join(".")} ${issue.message}`;
  throw new Failure("invalid_input", `Cannot call ${method}: ${where.trim()}`);
}
