import { Socket } from "node:net";
import type { WorkerGrant } from "@capsem/api";
import { httpMethods } from "@capsem/net";
import { createPeer, type Peer } from "@capsem/rpc";
import type { Log } from "@capsem/worker";
import { Dialler, type DiallerParts } from "./dialler.ts";
import { EGRESS_LIMITS } from "./limits.ts";

export interface ClientsParts {
  readonly dialling: (client: string) => DiallerParts;
  readonly log: Log;
  readonly onFault: (method: string, thrown: unknown) => void;
}

interface Client {
  readonly peer: Peer;
  readonly dialler: Dialler;
  readonly generation: number;
}

/** The channels that were granted, by the names that the service gave them. No two share anything. */
export class Clients {
  readonly #parts: ClientsParts;
  readonly #clients = new Map<string, Client>();

  constructor(parts: ClientsParts) {
    this.#parts = parts;
  }

  /** Owns the descriptor. A higher generation takes the place of the one before; an older one comes too late. */
  take({ name, generation }: WorkerGrant, fd: number): void {
    const { dialling, log, onFault } = this.#parts;
    const duplex = new Socket({ fd, readable: true, writable: true });
    const before = this.#clients.get(name);
    const isFull = before === undefined && this.#clients.size >= EGRESS_LIMITS.clientsMax;
    if (isFull || (before !== undefined && before.generation >= generation)) {
      duplex.destroy();
      log("warning", "a client was refused", { client: name, generation, clients: this.#clients.size });
      return;
    }
    if (before !== undefined) this.#part(name, before);
    const dialler = new Dialler(dialling(name));
    const peer = createPeer({
      // The client is nearer to the guest.
      role: "guest",
      duplex,
      streaming: httpMethods((call, signal) => dialler.serve(call, signal)),
      onInternalError: onFault,
    });
    const client: Client = { peer, dialler, generation };
    this.#clients.set(name, client);
    void peer.ended.then(() => this.#part(name, client));
  }

  /** Null: of all clients, of all servers. */
  revoke(name: string | null, server: string | null): void {
    for (const [each, { dialler }] of this.#clients) {
      if (name === null || each === name) dialler.revoke(server, "the permission for it was taken back");
    }
  }

  /** All channels end, and what they had open. */
  async end(): Promise<void> {
    const ended = [...this.#clients.values()].map(({ peer }) => peer.ended);
    for (const [name, client] of this.#clients) this.#part(name, client);
    await Promise.all(ended);
  }

  #part(name: string, client: Client): void {
    client.dialler.end();
    client.peer.close();
    if (this.#clients.get(name) === client) this.#clients.delete(name);
  }
}
