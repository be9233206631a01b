import { type Deferred, defer, Failure, ignore, messageOf, within } from "@capsem/base";
import { createPeer, type Handler, type Peer } from "@capsem/rpc";
import type { DuplexLike } from "@capsem/wire";
import type { Log } from "@capsem/worker";
import { PROXY_LIMITS } from "./limits.ts";

export type NeighbourKind = "aggregator" | "builtin";

export interface NeighbourOptions {
  readonly kind: NeighbourKind;
  /** Asks the service for one; the grant comes by itself. */
  readonly need: (kind: NeighbourKind) => Promise<unknown>;
  /** What one is told before it is used. */
  readonly prepare: (peer: Peer) => Promise<void>;
  /** Whether what it was told is what it is to know now; else it is told again. */
  readonly isPrepared: () => boolean;
  readonly handlers: Readonly<Record<string, Handler>>;
  readonly onUp: () => void;
  readonly onLost: () => void;
  readonly log: Log;
}

/** The tool servers on the other end of a grant. One that died is replaced at the next use, by another generation. */
export class Neighbour {
  readonly #options: NeighbourOptions;
  #generation = 0;
  #peer: Peer | undefined;
  #isReady = false;
  #wanted: Deferred<Peer> | undefined;

  constructor(options: NeighbourOptions) {
    this.#options = options;
  }

  /** One that can be called now. */
  get ready(): Peer | undefined {
    return this.#isReady ? this.#peer : undefined;
  }

  /** Resolves when one can be called. Throws Failure("upstream_failed") where none comes in time. */
  async use(): Promise<Peer> {
    const { ready } = this;
    if (ready !== undefined) return ready;
    return within(this.#want().promise, PROXY_LIMITS.needTimeoutMs, () =>
      this.#away("it did not start in time"),
    );
  }

  /** Owns the duplex. */
  adopt(generation: number, duplex: DuplexLike): void {
    const { kind, handlers, log } = this.#options;
    if (generation <= this.#generation) {
      duplex.destroy();
      return;
    }
    this.#generation = generation;
    const older = this.#peer;
    const peer = createPeer({
      ...{ role: "host" as const, duplex, handlers },
      onInternalError: (method, thrown) =>
        log("error", "a call failed", { method, from: kind, cause: String(thrown) }),
    });
    this.#peer = peer;
    this.#isReady = false;
    older?.close();
    // Its end is not seen any more.
    if (older !== undefined) this.#options.onLost();
    void peer.ended.then(() => this.#lost(peer));
    void this.#prepare(peer);
  }

  close(): void {
    this.#peer?.close();
  }

  #want(): Deferred<Peer> {
    if (this.#wanted !== undefined) return this.#wanted;
    const wanted = defer<Peer>();
    ignore(wanted.promise);
    this.#wanted = wanted;
    // One that is being prepared is on its way already.
    if (this.#peer === undefined) {
      this.#options
        .need(this.#options.kind)
        .catch((thrown: unknown) => this.#fail(wanted, this.#away(messageOf(thrown))));
    }
    const timer = setTimeout(
      () => this.#fail(wanted, this.#away("it did not start in time")),
      PROXY_LIMITS.needTimeoutMs,
    );
    wanted.promise.then(
      () => clearTimeout(timer),
      () => clearTimeout(timer),
    );
    return wanted;
  }

  async #prepare(peer: Peer): Promise<void> {
    try {
      do await this.#options.prepare(peer);
      while (this.#peer === peer && !this.#options.isPrepared());
    } catch (thrown) {
      this.#options.log("error", "a neighbour is not ready", {
        kind: this.#options.kind,
        cause: messageOf(thrown),
      });
      peer.close();
      return;
    }
    if (this.#peer !== peer) return;
    this.#isReady = true;
    const wanted = this.#wanted;
    this.#wanted = undefined;
    wanted?.resolve(peer);
    this.#options.onUp();
  }

  #lost(peer: Peer): void {
    if (this.#peer !== peer) return;
    this.#peer = undefined;
    this.#isReady = false;
    const wanted = this.#wanted;
    if (wanted !== undefined) this.#fail(wanted, this.#away("it ended while it started"));
    this.#options.log("warning", "a neighbour is gone", {
      kind: this.#options.kind,
      generation: this.#generation,
    });
    this.#options.onLost();
  }

  #fail(wanted: Deferred<Peer>, failure: Failure): void {
    if (this.#wanted !== wanted) return;
    this.#wanted = undefined;
    wanted.reject(failure);
  }

  #away(why: string): Failure {
    return new Failure("upstream_failed", `Cannot reach the ${this.#options.kind}: ${why}`, {
      retryable: true,
    });
  }
}
