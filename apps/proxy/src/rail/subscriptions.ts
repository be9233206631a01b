import { ignore, messageOf } from "@capsem/base";
import { errorText, RPC_CODES } from "@capsem/mcp-protocol";
import { type CallParts, waitFor } from "../call/call-parts.ts";
import type { Answer, Caller } from "../call/caller.ts";
import { requestUpstream } from "../call/upstream.ts";
import { neighbourOf } from "../parts.ts";

/** Somebody who wants to know, by the name that it has of the resource. */
export interface Subscriber {
  updated(uri: string): void;
}

interface Subscribed {
  readonly server: string;
  readonly uri: string;
  /** With the name that each has of it. */
  readonly by: Map<Subscriber, string>;
  /** Those for whom the server is asked just now. */
  asking: number;
  /** The server has said that it tells of it. */
  isAtServer: boolean;
}

/** What somebody wants to hear of. */
export interface Wish {
  readonly server: string;
  readonly uri: string;
  /** The client's name of it. */
  readonly asGiven: string;
  readonly subscriber: Subscriber;
  /** Aborted, nobody wants it any more. */
  readonly caller: Caller;
}

/** How long a server may take to hear of what nobody waits for. */
const ASIDE_MS = 10_000;

/** Resources that clients want to hear of. A server has one subscription of each, for all of them. */
export class Subscriptions {
  readonly #parts: CallParts;
  readonly #all = new Map<string, Subscribed>();
  /** What servers are told just now to tell of no longer: who comes meanwhile comes behind it. */
  readonly #leaving = new Map<string, Promise<unknown>>();

  constructor(parts: CallParts) {
    this.#parts = parts;
  }

  get size(): number {
    return this.#all.size;
  }

  /** `ask` asks the server. Nobody tells it otherwise meanwhile; where nobody wants it in the end, it is told so. */
  async subscribe(wish: Wish, ask: () => Promise<Answer>): Promise<Answer> {
    const { server, uri, asGiven, subscriber, caller } = wish;
    const key = keyOf(server, uri);
    for (let leaving = this.#leaving.get(key); leaving !== undefined; leaving = this.#leaving.get(key))
      await waitFor(leaving, caller, this.#parts);
    const subscribed = this.#entry(key, server, uri);
    subscribed.asking += 1;
    try {
      const answer = await ask();
      if (answer.kind === "result") {
        subscribed.isAtServer = true;
        if (!caller.signal.aborted) subscribed.by.set(subscriber, asGiven);
      }
      return answer;
    } finally {
      subscribed.asking -= 1;
      if (this.#isLeft(subscribed) && subscribed.isAtServer) this.#leaveAside(subscribed);
    }
  }

  /** True when it was the last one, and the server need no longer tell of it: see `leave`. */
  remove(server: string, uri: string, subscriber: Subscriber): boolean {
    const subscribed = this.#all.get(keyOf(server, uri));
    return subscribed?.by.delete(subscriber) === true && this.#isLeft(subscribed);
  }

  /** `tell` tells the server that nobody wants it. */
  leave<T>(server: string, uri: string, tell: () => Promise<T>): Promise<T> {
    const key = keyOf(server, uri);
    const told = tell();
    const settled = told.then(
      () => undefined,
      () => undefined,
    );
    this.#leaving.set(key, settled);
    void settled.then(() => {
      if (this.#leaving.get(key) === settled) this.#leaving.delete(key);
    });
    return told;
  }

  /** All of one that is gone; servers are told, and nobody waits for it. */
  removeAll(subscriber: Subscriber): void {
    for (const subscribed of [...this.#all.values()]) {
      if (this.remove(subscribed.server, subscribed.uri, subscriber)) this.#leaveAside(subscribed);
    }
  }

  updated(server: string, uri: string): void {
    for (const [subscriber, asGiven] of this.#all.get(keyOf(server, uri))?.by ?? [])
      subscriber.updated(asGiven);
  }

  /** A process that is new knows of none. */
  renew(isExternal: boolean): void {
    for (const { server, uri, by } of this.#all.values()) {
      if (by.size > 0 && this.#parts.book.get(server)?.isExternal === isExternal)
        ignore(this.#tell("resources/subscribe", server, uri));
    }
  }

  has(isExternal: boolean): boolean {
    return [...this.#all.values()].some(
      ({ server, by }) => by.size > 0 && this.#parts.book.get(server)?.isExternal === isExternal,
    );
  }

  /** How many one has. */
  countOf(subscriber: Subscriber): number {
    return [...this.#all.values()].filter(({ by }) => by.has(subscriber)).length;
  }

  #entry(key: string, server: string, uri: string): Subscribed {
    const known = this.#all.get(key);
    if (known !== undefined) return known;
    const subscribed = { server, uri, by: new Map(), asking: 0, isAtServer: false };
    this.#all.set(key, subscribed);
    return subscribed;
  }

  /** Forgets what nobody wants. */
  #isLeft({ server, uri, by, asking }: Subscribed): boolean {
    return by.size === 0 && asking === 0 && this.#all.delete(keyOf(server, uri));
  }

  #leaveAside({ server, uri }: Subscribed): void {
    ignore(this.leave(server, uri, () => this.#tell("resources/unsubscribe", server, uri)));
  }

  async #tell(method: string, server: string, uri: string): Promise<void> {
    const declared = this.#parts.book.get(server);
    if (declared === undefined) return;
    const request = {
      ...{ server, method, params: JSON.stringify({ uri }), timeout_ms: ASIDE_MS },
      client: { sampling: false, elicitation: false, roots: false },
    };
    const ears = {
      notified: async () => undefined,
      asked: async () => errorText(null, RPC_CODES.methodNotFound, "Nobody is there to ask"),
    };
    const neighbour = neighbourOf(this.#parts.neighbours, declared.isExternal);
    try {
      await requestUpstream(neighbour, request, ears, AbortSignal.timeout(ASIDE_MS));
    } catch (thrown) {
      this.#parts.log("warning", "a server could not be told of a subscription", {
        ...{ server, method, cause: messageOf(thrown) },
      });
    }
  }
}

function keyOf(server: string, uri: string): string {
  return `${server}\0${uri}`;
}
