import { apiFailure, type WorkerKind } from "@capsem/api";
import { messageOf, sleep, within } from "@capsem/base";
import type { VmFacts } from "../boundary/parts.ts";
import type { ServiceLog } from "../log/service-log.ts";
import type { EgressProcess } from "./egress-process.ts";
import { PROXY_LIMITS, WORKER_LIMITS } from "./limits.ts";
import { type LinkParts, ProxyLink } from "./proxy-link.ts";
import { type WorkerParts, WorkerProcess } from "./worker-process.ts";
import { WorkerSlot } from "./worker-slot.ts";

/** The traffic lane of a VM, whose far end the service keeps. */
export interface Lane {
  /** Null: the VM's owner is gone. */
  readonly fd: () => number | null;
  /** Tells the guest to begin anew. Resolves when it has acknowledged it. */
  readonly open: (lane: { marker: string; generation: number }) => Promise<void>;
  /** The guest's relay has its port open: it has, or had, a client. */
  readonly isOpen: () => boolean;
}

export interface CellParts {
  readonly scope: string;
  readonly vm: () => VmFacts | null;
  /** Null: the host's own calls. */
  readonly lane: Lane | null;
  readonly worker: WorkerParts;
  readonly link: LinkParts;
  readonly egress: EgressProcess;
  readonly onActivity: () => void;
  readonly log: ServiceLog;
}

type NeighbourKind = "aggregator" | "builtin";

interface Neighbour {
  readonly slot: WorkerSlot;
  /** Of the pairs with proxies. */
  generation: number;
  /** The pair of two lives, and when it was granted. */
  pair: { readonly proxy: WorkerProcess; readonly worker: WorkerProcess; readonly atMs: number } | null;
  /** Under way for one proxy. */
  pairing: { readonly proxy: WorkerProcess; readonly done: Promise<void> } | null;
}

/** One life of a proxy. */
interface Served {
  readonly worker: WorkerProcess;
  readonly link: ProxyLink;
  readonly lane: { readonly marker: string; readonly generation: number } | null;
  /** The guest was told of its lane: another guest's end needs another proxy. */
  isLaneUsed: boolean;
}

/** The processes that carry the tool calls of one scope, each started at its first use and replaced when it dies. */
export class Cell {
  readonly scope: string;
  readonly #parts: CellParts;
  readonly #proxy: WorkerSlot;
  readonly #neighbours: Readonly<Record<NeighbourKind, Neighbour>>;
  #served: Served | null = null;
  #laneGeneration = 0;
  #opening: Promise<void> | null = null;
  readonly #closed = new AbortController();
  /** Of proxies that are gone. */
  #callsBefore = 0;

  constructor(parts: CellParts) {
    this.#parts = parts;
    this.scope = parts.scope;
    const { monotonicMs } = parts.worker.powers;
    this.#proxy = new WorkerSlot({
      start: () => this.#startProxy(),
      onGone: (life) => this.#proxyGone(life),
      monotonicMs,
    });
    const neighbour = (kind: NeighbourKind): Neighbour => ({
      slot: new WorkerSlot({ start: () => this.#startNeighbour(kind), onGone: () => undefined, monotonicMs }),
      ...{ generation: 0, pair: null, pairing: null },
    });
    this.#neighbours = { aggregator: neighbour("aggregator"), builtin: neighbour("builtin") };
  }

  /** What runs now. */
  get info() {
    const runs = (kind: NeighbourKind) => isLiving(this.#neighbours[kind].slot.life);
    const calls = this.#callsBefore + (this.#served?.link.sink.calls ?? 0);
    return { scope: this.scope, aggregator: runs("aggregator"), builtin: runs("builtin"), calls };
  }

  get isRunning(): boolean {
    return isLiving(this.#proxy.life);
  }

  pidOf(kind: Exclude<WorkerKind, "egress">): number | null {
    const life = kind === "proxy" ? this.#proxy.life : this.#neighbours[kind].slot.life;
    return isLiving(life) ? (life?.pid ?? null) : null;
  }

  /** A proxy that serves. Throws "unavailable". */
  async need(signal?: AbortSignal): Promise<ProxyLink> {
    const late = () => apiFailure("unavailable", "Cannot reach the tools: their proxy does not start");
    await this.#proxy.need(signal);
    const link = this.#served?.link;
    if (link === undefined) throw late();
    try {
      await within(link.serving, WORKER_LIMITS.needTimeoutMs, late, signal);
    } catch (thrown) {
      if (signal?.aborted === true) throw thrown;
      throw apiFailure("unavailable", `Cannot reach the tools: ${messageOf(thrown)}`, { cause: thrown });
    }
    return link;
  }

  /** The guest has opened its end of the lane, perhaps again: it knows nothing of what went before. Never throws. */
  trafficOpened(): void {
    const served = this.#served;
    if (served?.isLaneUsed === true && isLiving(served.worker)) void served.worker.stop();
    this.#serveLane();
  }

  serversChanged(): void {
    this.#served?.link.serversChanged();
  }

  /** Its VM has another name. */
  vmChanged(): void {
    const vm = this.#parts.vm();
    if (vm !== null && this.#served !== null) void this.#served.link.vmChanged(vm);
  }

  /** Everything of it ends, and what it began is in the ledger. Idempotent. */
  async close(): Promise<void> {
    this.#closed.abort();
    const { aggregator, builtin } = this.#neighbours;
    await Promise.all([this.#proxy, aggregator.slot, builtin.slot].map((slot) => slot.stop()));
    await this.#served?.link.sink.close();
  }

  /** Sees to it that a guest that wants a lane has one. Never waits. */
  #serveLane(): void {
    const { lane } = this.#parts;
    if (lane === null || this.#closed.signal.aborted) return;
    this.#opening ??= this.#openLane(lane).finally(() => {
      this.#opening = null;
    });
  }

  /** As long as the guest wants one. Never rejects. */
  async #openLane(lane: Lane): Promise<void> {
    const { laneRetryMsMin, laneRetryMsMax } = PROXY_LIMITS;
    for (let tries = 0; lane.isOpen() && !this.#closed.signal.aborted; tries++) {
      try {
        if (await this.#tryLane(lane)) return;
      } catch (thrown) {
        if (this.#closed.signal.aborted) return;
        this.#parts.log("error", "a lane is not open", { scope: this.scope, cause: messageOf(thrown) });
      }
      const ms = Math.min(laneRetryMsMin * 2 ** tries, laneRetryMsMax);
      await sleep(ms, this.#closed.signal).catch(() => undefined);
    }
  }

  /** False: its proxy was gone before it served. */
  async #tryLane(lane: Lane): Promise<boolean> {
    await this.need();
    const served = this.#served;
    if (served?.lane == null || !isLiving(served.worker)) return false;
    if (served.isLaneUsed) return true;
    served.isLaneUsed = true;
    try {
      await within(lane.open(served.lane), PROXY_LIMITS.laneOpenTimeoutMs);
    } catch (thrown) {
      // The guest may have seen half of it: the next one has another marker.
      void served.worker.stop();
      throw thrown;
    }
    this.#parts.log("info", "lane open", { scope: this.scope, generation: served.lane.generation });
    return isLiving(served.worker);
  }

  #startProxy(): WorkerProcess {
    const { worker: parts, lane, link: linkParts } = this.#parts;
    const fd = lane === null ? null : lane.fd();
    if (lane !== null && fd === null)
      throw apiFailure("unavailable", "Cannot start the proxy: its VM is gone");
    this.#laneGeneration += 1;
    const marker = Buffer.from(parts.powers.random(32)).toString("hex");
    const lent = fd === null ? null : { fd, marker, generation: this.#laneGeneration };
    const link = new ProxyLink(linkParts, {
      scope: this.scope,
      vm: this.#parts.vm,
      needWorker: (kind) => this.#needWorker(kind, worker),
      onActivity: this.#parts.onActivity,
    });
    const worker: WorkerProcess = new WorkerProcess(parts, {
      kind: "proxy",
      ...{ scope: this.scope, vm: this.#parts.vm(), handlers: link.handlers() },
      ...(lent === null ? {} : { lane: lent }),
    });
    this.#served = { worker, link, lane: lent, isLaneUsed: false };
    void link.begin(worker);
    return worker;
  }

  /** A guest that was being served goes on to be; the host's next call starts its own. */
  #proxyGone(life: WorkerProcess): void {
    if (this.#served?.worker === life) {
      this.#callsBefore += this.#served.link.sink.calls;
      this.#served = null;
    }
    this.#serveLane();
  }

  #startNeighbour(kind: NeighbourKind): WorkerProcess {
    const { worker: parts, egress } = this.#parts;
    const life = new WorkerProcess(parts, { kind, scope: this.scope, vm: null, handlers: {} });
    egress.attach(life);
    return life;
  }

  /** Resolves when a grant of it is on its way to this proxy. */
  async #needWorker(kind: NeighbourKind, proxy: WorkerProcess): Promise<void> {
    const neighbour = this.#neighbours[kind];
    const known = neighbour.pairing;
    // That of a proxy which is gone by now grants nothing to this one.
    if (known?.proxy === proxy) return known.done;
    const done = this.#pair(kind, neighbour, proxy).finally(() => {
      if (neighbour.pairing === pairing) neighbour.pairing = null;
    });
    const pairing = { proxy, done };
    neighbour.pairing = pairing;
    return done;
  }

  async #pair(kind: NeighbourKind, neighbour: Neighbour, proxy: WorkerProcess): Promise<void> {
    const { pairs, monotonicMs } = this.#parts.worker.powers;
    const worker = await neighbour.slot.need();
    const { pair } = neighbour;
    const isOfBoth = pair?.proxy === proxy && pair.worker === worker;
    // It is on its way already; asked for again later, the pair has broken while both live.
    if (isOfBoth && monotonicMs() - pair.atMs < WORKER_LIMITS.regrantMsMin) return;
    if (proxy.isLost) return;
    const [near, far] = pairs.socketPair("stream");
    neighbour.generation += 1;
    neighbour.pair = { proxy, worker, atMs: monotonicMs() };
    const { generation } = neighbour;
    await Promise.all([
      worker.grant({ kind: "proxy", name: this.scope, generation }, far),
      proxy.grant({ kind, name: kind, generation }, near),
    ]);
  }
}

function isLiving(life: WorkerProcess | null): boolean {
  return life !== null && !life.isLost;
}
