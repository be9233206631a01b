import type { WorkerGrant } from "@capsem/api";
import { type Deferred, defer, Failure } from "@capsem/base";
import type { Handler } from "@capsem/rpc";
import { createPeer, type Peer, type StreamHandler } from "@capsem/rpc";
import type { DuplexLike } from "@capsem/wire";
import type { Log } from "@capsem/worker";

export interface NeighbourParts {
  /** What exists on the channel to the proxy. */
  readonly handlers: Readonly<Record<string, Handler>>;
  readonly streaming: Readonly<Record<string, StreamHandler>>;
  readonly log: Log;
}

const KINDS = ["proxy", "egress"] as const;
type Kind = (typeof KINDS)[number];

/** The proxy, who calls, and egress, who dials: each the newest that was granted. */
export class Neighbours {
  readonly #parts: NeighbourParts;
  readonly #peers = new Map<Kind, { readonly peer: Peer; readonly generation: number }>();
  readonly #generations = new Map<Kind, number>();
  #egressWanted: Deferred<Peer> | undefined;

  constructor(parts: NeighbourParts) {
    this.#parts = parts;
  }

  /** Owns the duplex. One of an older generation than its kind has had is ended. */
  adopt({ kind, generation }: WorkerGrant, duplex: DuplexLike): void {
    const known = KINDS.find((each) => each === kind);
    if (known === undefined || generation <= (this.#generations.get(known) ?? 0)) {
      duplex.destroy();
      return;
    }
    this.#generations.set(known, generation);
    const older = this.#peers.get(known);
    const peer = this.#open(known, duplex);
    this.#peers.set(known, { peer, generation });
    older?.peer.close();
    void peer.ended.then(() => {
      if (this.#peers.get(known)?.peer === peer) this.#peers.delete(known);
    });
    if (known === "egress") {
      this.#egressWanted?.resolve(peer);
      this.#egressWanted = undefined;
    }
  }

  /** Who waits for one is told of none: how long is the caller's to say. */
  egress(): Peer | Promise<Peer> {
    const here = this.#peers.get("egress");
    if (here !== undefined) return here.peer;
    this.#egressWanted ??= defer<Peer>();
    return this.#egressWanted.promise;
  }

  close(): void {
    for (const { peer } of this.#peers.values()) peer.close();
  }

  /** On a pair the one nearer to the guest is the host. */
  #open(kind: Kind, duplex: DuplexLike): Peer {
    const { handlers, streaming, log } = this.#parts;
    if (kind === "egress") return createPeer({ role: "host", duplex });
    return createPeer({
      role: "guest",
      duplex,
      handlers,
      streaming,
      onInternalError: (method, thrown) => {
        if (thrown instanceof Failure) return;
        const cause = thrown instanceof Error ? thrown.stack : String(thrown);
        log("error", "a call failed", { method, cause });
      },
    });
  }
}
