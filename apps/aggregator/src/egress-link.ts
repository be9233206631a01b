import { type Deferred, defer, Failure, ignore, within } from "@capsem/base";
import type { Peer } from "@capsem/rpc";
import { APP_LIMITS } from "./limits.ts";

/** The channel to the process that dials: the one of this moment, or the one that is coming. */
export class EgressLink {
  #peer: Peer | undefined;
  #coming: Deferred<Peer> = newComing();

  /** For `createHttpClient`. Rejects with "egress_lost" when none comes in time. */
  peer(signal: AbortSignal | undefined): Peer | Promise<Peer> {
    if (this.#peer !== undefined) return this.#peer;
    const lost = () =>
      new Failure("egress_lost", "Cannot fetch: the process that dials is not there", { retryable: true });
    return within(this.#coming.promise, APP_LIMITS.egressTimeoutMs, lost, signal);
  }

  attach(peer: Peer): void {
    const old = this.#peer;
    this.#peer = peer;
    this.#coming.resolve(peer);
    old?.close();
    void peer.ended.then(() => {
      if (this.#peer !== peer) return;
      this.#peer = undefined;
      this.#coming = newComing();
    });
  }

  close(): void {
    this.#peer?.close();
  }
}

function newComing(): Deferred<Peer> {
  const coming = defer<Peer>();
  ignore(coming.promise);
  return coming;
}
