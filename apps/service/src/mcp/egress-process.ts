import { messageOf } from "@capsem/base";
import type { Handler } from "@capsem/rpc";
import type { ServiceLog } from "../log/service-log.ts";
import type { WorkerParts } from "./worker-process.ts";
import { WorkerProcess } from "./worker-process.ts";
import { WorkerSlot } from "./worker-slot.ts";

/** What the service does for egress: it admits dials, and says which of them hold no more. */
export interface EgressService {
  /** For one life of the process; `peer` calls it. */
  handlers(peer: { readonly call: WorkerProcess["call"] }): Readonly<Record<string, Handler>>;
  /** That life is over: what it held of leases and requests has ended. */
  lost(): void;
}

export interface EgressParts {
  readonly worker: WorkerParts;
  readonly service: EgressService;
  readonly log: ServiceLog;
}

/** The one process that dials, started for the first that needs it and kept alive while anybody does. */
export class EgressProcess {
  readonly #parts: EgressParts;
  readonly #slot: WorkerSlot;
  /** Whoever has an end of a pair with it, by the name that it knows them by. */
  readonly #clients = new Map<string, WorkerProcess>();
  #generation = 0;
  #isStarting = false;
  #isClosed = false;

  constructor(parts: EgressParts) {
    this.#parts = parts;
    this.#slot = new WorkerSlot({
      start: () => this.#newLife(),
      onGone: () => this.#start(),
      monotonicMs: parts.worker.powers.monotonicMs,
    });
  }

  get isRunning(): boolean {
    return this.#slot.life !== null && !this.#slot.life.isLost;
  }

  get pid(): number | null {
    return this.#slot.life?.pid ?? null;
  }

  /** From now to its end the client has a way to egress, as soon as there is one, and another where it is replaced. */
  attach(client: WorkerProcess): void {
    const name = `${client.kind}:${client.scope}`;
    this.#clients.set(name, client);
    void client.lost.then(() => {
      if (this.#clients.get(name) === client) this.#clients.delete(name);
    });
    const { life } = this.#slot;
    if (life === null || life.isLost) this.#start();
    else this.#pair(life, client);
  }

  /** Ends the one that lives, which is not to be relied on; whoever has a way to it gets another. */
  async condemn(why: string): Promise<void> {
    const { life } = this.#slot;
    life?.condemn(why);
    await life?.gone;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#slot.stop();
  }

  #newLife(): WorkerProcess {
    const peer = { call: ((...asked) => life.call(...asked)) as WorkerProcess["call"] };
    const handlers = this.#parts.service.handlers(peer);
    const life = new WorkerProcess(this.#parts.worker, { kind: "egress", scope: "all", vm: null, handlers });
    void life.lost.then(() => this.#parts.service.lost());
    return life;
  }

  /** Again and again, while anybody needs it and it is not there. */
  #start(): void {
    if (this.#isClosed || this.#isStarting || this.#clients.size === 0) return;
    this.#isStarting = true;
    this.#slot.need().then(
      (life) => {
        this.#isStarting = false;
        for (const client of this.#clients.values()) this.#pair(life, client);
        // Its end was told while it was waited for.
        if (life.isLost) this.#start();
      },
      (thrown: unknown) => {
        this.#isStarting = false;
        this.#parts.log("error", "egress cannot be started", { cause: messageOf(thrown) });
        // Later: it waits longer each time.
        setImmediate(() => this.#start());
      },
    );
  }

  #pair(life: WorkerProcess, client: WorkerProcess): void {
    if (life.isLost || client.isLost) return;
    const [near, far] = this.#parts.worker.powers.pairs.socketPair("stream");
    this.#generation += 1;
    const generation = this.#generation;
    void life.grant({ kind: "client", name: `${client.kind}:${client.scope}`, generation }, near);
    void client.grant({ kind: "egress", name: "egress", generation }, far);
  }
}
