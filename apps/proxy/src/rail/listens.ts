import { Failure, ignore } from "@capsem/base";
import { META_KEYS, NOTIFICATIONS, notificationText } from "@capsem/mcp-protocol";
import type { Answer } from "../call/caller.ts";
import { invalidParams, objectParam, type Params } from "../call/params.ts";
import type { PlainCalls } from "../call/plain-call.ts";
import type { ItemKind } from "../catalog/catalog.ts";
import { PROXY_LIMITS } from "../limits.ts";
import type { OpenRequest } from "./open-request.ts";
import type { Subscriber, Subscriptions } from "./subscriptions.ts";
import type { Targets } from "./targets.ts";

/** What a listener wants to hear of, as it says it and as it is told that it will. */
interface Filter {
  toolsListChanged?: true;
  promptsListChanged?: true;
  resourcesListChanged?: true;
  resourceSubscriptions?: string[];
}
const CHANGES = [
  ["tools", "toolsListChanged", NOTIFICATIONS.toolsChanged],
  ["prompts", "promptsListChanged", NOTIFICATIONS.promptsChanged],
  ["resources", "resourcesListChanged", NOTIFICATIONS.resourcesChanged],
] as const;

/** One `subscriptions/listen`: it goes on until its client ends it. */
export class Listen implements Subscriber {
  readonly #request: OpenRequest;
  readonly #filter: Filter;

  constructor(request: OpenRequest, filter: Filter) {
    this.#request = request;
    this.#filter = filter;
  }

  changed(kinds: ReadonlySet<ItemKind>): void {
    for (const [kind, field, method] of CHANGES) {
      const isIt = kinds.has(kind) || (kind === "resources" && kinds.has("templates"));
      if (isIt && this.#filter[field] === true) this.#tell(method, {});
    }
  }

  updated(uri: string): void {
    this.#tell(NOTIFICATIONS.resourceUpdated, { uri });
  }

  acknowledge(): void {
    this.#tell(NOTIFICATIONS.subscriptionsAcknowledged, { notifications: this.#filter });
  }

  /** Each says which request it belongs to; its id goes as it was written. */
  #tell(method: string, params: Readonly<Record<string, unknown>>): void {
    const meta = `"_meta":{${JSON.stringify(META_KEYS.subscriptionId)}:${this.#request.idText}}`;
    const body = JSON.stringify(params).slice(1, -1);
    ignore(this.#request.tell(notificationText(method, `{${meta}${body === "" ? "" : `,${body}`}}`)));
  }
}

export interface ListensParts {
  readonly targets: Targets;
  readonly plain: PlainCalls;
  readonly subscriptions: Subscriptions;
}

/** Clients of the newer protocol that wait for changes. */
export class Listens {
  readonly #parts: ListensParts;
  readonly #open = new Set<Listen>();

  constructor(parts: ListensParts) {
    this.#parts = parts;
  }

  changed(kinds: ReadonlySet<ItemKind>): void {
    for (const listen of this.#open) listen.changed(kinds);
  }

  /** Never answers: it ends with the request's signal, whose reason it throws. */
  async listen(request: OpenRequest): Promise<Answer> {
    const wanted = objectParam(request.params, "notifications");
    if (wanted === undefined) throw invalidParams('"notifications" is needed');
    const filter: Filter = {};
    for (const [, field] of CHANGES) if (wanted[field] === true) filter[field] = true;
    const listen = new Listen(request, filter);
    this.#open.add(listen);
    try {
      const uris = await this.#subscribe(request, listen, wanted);
      if (uris.length > 0) filter.resourceSubscriptions = uris;
      listen.acknowledge();
      return await new Promise<Answer>((_, reject) => {
        const end = () => reject(request.signal.reason);
        if (request.signal.aborted) end();
        else request.signal.addEventListener("abort", end, { once: true });
      });
    } finally {
      this.#open.delete(listen);
      this.#parts.subscriptions.removeAll(listen);
    }
  }

  /** Those that it is let have: one that is refused, or is not there, is not in the answer. */
  async #subscribe(request: OpenRequest, listen: Listen, wanted: Params): Promise<string[]> {
    const asked = wanted.resourceSubscriptions;
    if (asked === undefined) return [];
    if (!Array.isArray(asked) || asked.length > PROXY_LIMITS.subscriptionsOfClientMax) {
      throw invalidParams('"resourceSubscriptions" is no list, or too long a one');
    }
    const uris: string[] = [];
    for (const uri of asked) {
      if (typeof uri !== "string") throw invalidParams("a URI is no text");
      if (await this.#subscribeOne(request, listen, uri)) uris.push(uri);
    }
    return uris;
  }

  async #subscribeOne(request: OpenRequest, listen: Listen, uri: string): Promise<boolean> {
    const { targets, plain, subscriptions } = this.#parts;
    try {
      const target = await targets.resource(request, { uri });
      const wish = {
        ...{ server: target.server.name, uri: target.key, asGiven: uri },
        ...{ subscriber: listen, caller: request },
      };
      const { kind } = await subscriptions.subscribe(wish, () =>
        plain.call(request, "resources/subscribe", { uri }, target),
      );
      return kind === "result";
    } catch (thrown) {
      if (!(thrown instanceof Failure) || request.signal.aborted) throw thrown;
      return false;
    }
  }
}
