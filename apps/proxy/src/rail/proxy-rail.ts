import { Failure, ignore } from "@capsem/base";
import { memberOf } from "@capsem/mcp-protocol";
import { CLEAN } from "@capsem/policy";
import type { CallParts } from "../call/call-parts.ts";
import { FairSlots } from "../call/fair-slots.ts";
import { HeldCalls } from "../call/held-calls.ts";
import { Links } from "../call/links.ts";
import { Side } from "../call/side-judge.ts";
import { Taints } from "../call/taints.ts";
import type { ItemKind } from "../catalog/catalog.ts";
import { Views } from "../catalog/views.ts";
import type { Client, Conversation, Rail } from "../conversation.ts";
import type { Asker } from "../judge/judge.ts";
import { PROXY_LIMITS } from "../limits.ts";
import type { RailParts } from "../parts.ts";
import { Recorder } from "../record/recorder.ts";
import { Dispatch } from "./dispatch.ts";
import { HostCalls } from "./host-calls.ts";
import { clientGone } from "./open-request.ts";
import { RailConversation } from "./rail-conversation.ts";

/** Calls at once are bounded by what one channel to a neighbour carries beside everything else. */
const PLACES_MAX = 192;

export interface RailOptions {
  readonly parts: RailParts;
  readonly cores: number;
  /** Resolves when rules and servers have come. */
  readonly begun: Promise<void>;
}

/** The one way of every request, whichever door it came in by. */
export class ProxyRail implements Rail {
  readonly host: HostCalls;
  readonly #parts: CallParts;
  readonly #dispatch: Dispatch;
  readonly #clients = new Set<RailConversation>();
  /** What clients are told of together. */
  readonly #changed = new Set<ItemKind>();
  #changedTimer: NodeJS.Timeout | undefined;

  constructor({ parts, cores, begun }: RailOptions) {
    const places = Math.min(PLACES_MAX, Math.max(1, cores) * PROXY_LIMITS.callsPerCore);
    const recorder = new Recorder(parts);
    this.#parts = {
      ...parts,
      // It changes: a copy would not.
      get vm() {
        return parts.vm;
      },
      recorder,
      views: new Views(parts, recorder, (kind) => this.changed(new Set([kind]))),
      slots: new FairSlots(places, {
        waitingMax: PROXY_LIMITS.callsWaitingMax,
        waitingOfOneMax: PROXY_LIMITS.callsWaitingOfClientMax,
      }),
      taints: new Taints(),
      held: new HeldCalls(parts.random),
      links: new Links(),
    };
    this.#dispatch = new Dispatch(this.#parts, begun);
    this.host = new HostCalls(this.#parts, this.#dispatch.tools);
  }

  open(client: Client): Conversation {
    const conversation = new RailConversation(client, this.#dispatch, (closed) => this.#closed(closed));
    if (!client.gone.aborted) this.#clients.add(conversation);
    return conversation;
  }

  reserved({ host, port, method, path, processName, status }: Parameters<Rail["reserved"]>[0]): void {
    const { recorder, log } = this.#parts;
    const person = { trace_id: null, turn_id: null, requester: "guest", client: null, token_id: null };
    const net = { kind: RESERVED, process_name: processName, host, port, method, path, status };
    try {
      const reason = "this name is ours, and serves nothing but tools";
      recorder.refused({ kind: "net", who: recorder.who(person), net, outcome: "blocked", reason });
    } catch (thrown) {
      if (!(thrown instanceof Failure)) throw thrown;
      log("warning", "a refused request is not recorded", {
        host: host.slice(0, 128),
        cause: thrown.message,
      });
    }
  }

  /** Lists are no longer what clients have of them. They are told within a bound, and once of many changes. */
  changed(kinds: ReadonlySet<ItemKind>): void {
    for (const kind of kinds) this.#changed.add(kind);
    if (this.#changed.size === 0) return;
    this.#changedTimer ??= setTimeout(() => {
      this.#changedTimer = undefined;
      const all = new Set(this.#changed);
      this.#changed.clear();
      for (const client of this.#clients) client.changed(all);
      this.#dispatch.listens.changed(all);
    }, PROXY_LIMITS.changedWaitMs);
  }

  resourceUpdated(server: string, uri: string): void {
    this.#dispatch.subscriptions.updated(server, uri);
  }

  /** A log message of a server that belongs to no request. */
  logged(server: string, paramsText: string): void {
    const declared = this.#parts.book.get(server);
    if (declared === undefined) return;
    const level = memberOf(paramsText, "level");
    const side = new Side(this.#parts, this.#parts.recorder, declared, {
      asker: () => NOBODY,
      timeLeftMs: () => 1,
    });
    if (level?.startsWith('"') !== true || !side.mayPass("notifications/message", paramsText)) return;
    for (const client of this.#clients) client.logged(JSON.parse(level) as string, paramsText);
  }

  neighbourUp(isExternal: boolean): void {
    this.#dispatch.subscriptions.renew(isExternal);
  }

  /** Somebody waits for what only its successor will tell. */
  neighbourLost(isExternal: boolean): void {
    this.#parts.catalogs.setStale(isExternal);
    const neighbour = isExternal ? this.#parts.neighbours.aggregator : this.#parts.neighbours.builtin;
    if (this.#dispatch.subscriptions.has(isExternal)) ignore(neighbour.use());
  }

  get clientCount(): number {
    return this.#clients.size;
  }

  close(): void {
    clearTimeout(this.#changedTimer);
    for (const client of [...this.#clients]) client.close();
  }

  #closed(conversation: RailConversation): void {
    this.#clients.delete(conversation);
    this.#dispatch.subscriptions.removeAll(conversation);
    const { client } = conversation;
    // Over HTTP others may come back to the same session.
    if (client.transport !== "framed") return;
    this.#parts.held.end(client.taintKey, clientGone());
    this.#parts.taints.end(client.taintKey);
  }
}

const RESERVED = "capsem.internal.reserved";
const NOBODY: Asker = {
  ...{ transport: "direct", processName: null, label: CLEAN },
  person: { trace_id: null, turn_id: null, requester: "service", client: null, token_id: null },
};
