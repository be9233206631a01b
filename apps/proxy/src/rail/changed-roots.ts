import { Failure, ignore, messageOf } from "@capsem/base";
import { NOTIFICATIONS } from "@capsem/mcp-protocol";
import { type CallParts, placeFor } from "../call/call-parts.ts";
import type { Caller } from "../call/caller.ts";
import { Exchange } from "../call/exchange.ts";
import type { Params } from "../call/params.ts";
import { Side } from "../call/side-judge.ts";
import { PROXY_LIMITS } from "../limits.ts";

type NewCaller = (controller: AbortController) => Caller;

const METHOD = NOTIFICATIONS.rootsChanged;
const TIME_MS = PROXY_LIMITS.rootsChangedMs;

/**
 * The servers that have asked one client for its roots, which hear when these change: to others it is no news. A server
 * asks anew in the course of being told, so that it is this client that it asks.
 */
export class ChangedRoots {
  readonly #parts: CallParts;
  readonly #servers = new Set<string>();
  /** Being told; true: once more behind it. */
  readonly #telling = new Map<string, boolean>();
  readonly #running = new Set<AbortController>();
  #end: Failure | undefined;

  constructor(parts: CallParts) {
    this.#parts = parts;
  }

  asked(server: string): void {
    this.#servers.add(server);
  }

  /** The client is gone. */
  close(reason: Failure): void {
    this.#end = reason;
    for (const controller of this.#running) controller.abort(reason);
  }

  /** `newCaller` for each server that is told: what the client is while it is asked. */
  tell(params: Params, newCaller: NewCaller): void {
    for (const server of this.#servers) {
      if (this.#telling.has(server)) this.#telling.set(server, true);
      else ignore(this.#tellOne(server, params, newCaller));
    }
  }

  async #tellOne(server: string, params: Params, newCaller: NewCaller): Promise<void> {
    if (this.#end !== undefined) return;
    const controller = new AbortController();
    this.#running.add(controller);
    this.#telling.set(server, false);
    try {
      await this.#exchange(server, params, newCaller(controller));
    } catch (thrown) {
      const level = thrown instanceof Failure ? "warning" : "error";
      const cause = messageOf(thrown);
      this.#parts.log(level, "a server could not be told of changed roots", { server, cause });
    } finally {
      this.#running.delete(controller);
      const isAgain = this.#telling.get(server) === true;
      this.#telling.delete(server);
      if (isAgain) ignore(this.#tellOne(server, params, newCaller));
    }
  }

  async #exchange(name: string, params: Params, caller: Caller): Promise<void> {
    const { book, catalogs, recorder, slots, clock } = this.#parts;
    const server = book.get(name);
    // One of the newer protocol asks anew each time.
    if (server === undefined || catalogs.peek(name)?.era === "modern") return;
    const side = new Side(this.#parts, recorder, server, {
      asker: () => caller.asker,
      timeLeftMs: () => Math.max(1, caller.deadlineMs - clock.monotonicMs()),
    });
    if (!side.mayPassOn(METHOD, params)) return;
    const release = slots.takeNow() ?? (await placeFor(caller, this.#parts));
    try {
      const { deadlineMs } = caller;
      const parts = this.#parts;
      const exchange = new Exchange(caller, {
        parts,
        server,
        method: METHOD,
        what: `tell ${server.name} of other roots`,
        idleMs: TIME_MS,
        deadlineMs,
        side,
      });
      await exchange.run(JSON.stringify(params));
    } finally {
      release();
    }
  }
}
