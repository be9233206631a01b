import { Failure, ignore } from "@capsem/base";
import {
  type Envelope,
  envelopeErrorCode,
  errorText,
  hasMethod,
  idKeyOf,
  memberOf,
  NOTIFICATIONS,
  notificationText,
  type RequestEnvelope,
  RPC_CODES,
  readEnvelope,
} from "@capsem/mcp-protocol";
import type { Answer } from "../call/caller.ts";
import type { Params } from "../call/params.ts";
import type { ItemKind } from "../catalog/catalog.ts";
import type { Client, Conversation, LargeMessage, Origin } from "../conversation.ts";
import { plainObject } from "../judge/plain-json.ts";
import { PROXY_LIMITS } from "../limits.ts";
import { answerMessage, failureText } from "./answers.ts";
import { AskedClient } from "./asked-client.ts";
import type { ChangedRoots } from "./changed-roots.ts";
import { type ClientState, levelOf, newState, readSaid } from "./client-state.ts";
import type { Dispatch } from "./dispatch.ts";
import { cancelledByClient, clientGone, OpenRequest, type RequestContext } from "./open-request.ts";
import type { Subscriber } from "./subscriptions.ts";

const EMPTY: Params = {};
/** What a server asks when it is told of something belongs to no request: no client has one of this id. */
const NEWS = { idText: '"capsem:news"', id: "capsem:news" } as const;
/** What its lists are called in what a client is told of them. */
const CHANGED: readonly (readonly [ItemKind, string])[] = [
  ["tools", NOTIFICATIONS.toolsChanged],
  ["resources", NOTIFICATIONS.resourcesChanged],
  ["prompts", NOTIFICATIONS.promptsChanged],
];

/** One client, from its first message to its end. */
export class RailConversation implements Conversation, Subscriber {
  readonly client: Client;
  readonly state: ClientState = newState();
  readonly #dispatch: Dispatch;
  readonly #onClosed: (conversation: RailConversation) => void;
  /** By the request's id. */
  readonly #inFlight = new Map<string, AbortController>();
  readonly #asked: AskedClient;
  readonly #roots: ChangedRoots;
  #isClosed = false;

  constructor(client: Client, dispatch: Dispatch, onClosed: (conversation: RailConversation) => void) {
    this.client = client;
    this.#dispatch = dispatch;
    this.#onClosed = onClosed;
    this.#asked = new AskedClient(client);
    this.#roots = dispatch.changedRoots();
    if (client.gone.aborted) this.close();
    else client.gone.addEventListener("abort", () => this.close(), { once: true });
  }

  async receive(message: string, origin: Origin, read?: Envelope): Promise<void> {
    if (this.#isClosed) return;
    let envelope: Envelope;
    try {
      envelope = read ?? readEnvelope(message);
    } catch (thrown) {
      const failure = thrown instanceof Failure ? thrown : new Failure("parse_error", "Cannot read message");
      const id = failure.facts?.id_text;
      const idText = typeof id === "string" ? id : null;
      await this.#send(errorText(idText, envelopeErrorCode(failure), failure.message), idText);
      return;
    }
    switch (envelope.kind) {
      case "request":
        return this.#request(envelope, origin);
      case "notification":
        return this.#notified(envelope.method, envelope.paramsText, origin);
      case "result":
        return this.#asked.answered(envelope.idText, { kind: "result", text: envelope.resultText });
      case "error":
        if (envelope.idText === null) return;
        return this.#asked.answered(envelope.idText, { kind: "error", text: envelope.errorText });
    }
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const controller of this.#inFlight.values()) controller.abort(clientGone());
    this.#roots.close(clientGone());
    this.#onClosed(this);
  }

  /** Lists that it may have are no longer what they were. */
  changed(kinds: ReadonlySet<ItemKind>): void {
    if (!this.state.isInitialized) return;
    for (const [kind, method] of CHANGED) {
      const isIt = kinds.has(kind) || (kind === "resources" && kinds.has("templates"));
      if (isIt) ignore(this.#send(notificationText(method), null));
    }
  }

  updated(uri: string): void {
    ignore(this.#send(notificationText(NOTIFICATIONS.resourceUpdated, JSON.stringify({ uri })), null));
  }

  /** A log message that belongs to no request. */
  logged(level: string, paramsText: string): void {
    const { isInitialized, logLevel } = this.state;
    if (!isInitialized || (logLevel !== undefined && levelOf(level) < logLevel)) return;
    ignore(this.#send(notificationText(NOTIFICATIONS.message, paramsText), null));
  }

  async #request(envelope: RequestEnvelope, origin: Origin): Promise<void> {
    const { idText } = envelope;
    const key = idKeyOf(idText);
    if (this.#inFlight.has(key)) {
      const words = "Cannot answer: a request with this id is not answered yet";
      await this.#send(errorText(idText, RPC_CODES.invalidRequest, words), idText);
      return;
    }
    if (this.#inFlight.size >= PROXY_LIMITS.requestsOfClientMax) {
      const words = `Cannot answer: ${this.#inFlight.size} requests are not answered yet`;
      await this.#send(errorText(idText, RPC_CODES.internalError, words), idText);
      return;
    }
    const controller = new AbortController();
    this.#inFlight.set(key, controller);
    let message: string | LargeMessage;
    try {
      message = answerMessage(idText, await this.#answer(envelope, origin, controller));
    } catch (thrown) {
      if (!(thrown instanceof Failure)) this.#dispatch.bug(envelope.method, thrown);
      message = failureText(idText, thrown);
    } finally {
      this.#inFlight.delete(key);
    }
    // Whoever has cancelled hears nothing more of it.
    if (isCancelled(controller.signal) || (await this.#send(message, idText))) return;
    // It may have been a question of a server, which nobody comes back for.
    controller.abort(clientGone());
  }

  async #answer(envelope: RequestEnvelope, origin: Origin, controller: AbortController): Promise<Answer> {
    const { method, paramsText, id, idText } = envelope;
    if (!this.#dispatch.isReady) await this.#dispatch.ready();
    const params = paramsText === undefined ? EMPTY : plainObject(paramsText);
    const said = readSaid(this.client, this.state, params);
    if (!hasMethod(said.era, method)) {
      throw new Failure(
        "method_not_found",
        `Cannot do ${JSON.stringify(method.slice(0, 64))}: no such method`,
      );
    }
    const request = this.#opened({ idText, id, method, params, said, origin, controller });
    return this.#dispatch.answer(this, request);
  }

  #opened(context: Omit<RequestContext, "client" | "owner" | "asker" | "nowMs" | "ask">): OpenRequest {
    const { idText, id, method, params, said, origin, controller } = context;
    // One by one: this is on the way of each request, and a spread is slow there.
    return new OpenRequest({
      client: this.client,
      owner: this,
      idText,
      id,
      method,
      params,
      said,
      origin,
      controller,
      asker: this.#dispatch.askerOf(this.client, said, origin),
      nowMs: this.#dispatch.nowMs(),
      ask: this.#ask,
    });
  }

  readonly #ask: RequestContext["ask"] = (question, about, signal) => {
    if (question.method === "roots/list") this.#roots.asked(question.server);
    return this.#asked.ask(question, about, signal);
  };

  #notified(method: string, paramsText: string | undefined, origin: Origin): void {
    switch (method) {
      case NOTIFICATIONS.initialized:
        this.state.isInitialized = true;
        return;
      case NOTIFICATIONS.cancelled: {
        const id = paramsText === undefined ? undefined : requestIdOf(paramsText);
        if (id !== undefined) this.#inFlight.get(id)?.abort(cancelledByClient());
        return;
      }
      case NOTIFICATIONS.progress:
        if (paramsText !== undefined) this.#asked.progressed(paramsText);
        return;
      case NOTIFICATIONS.rootsChanged:
        if (this.state.isInitialized && this.state.abilities.roots) this.#rootsChanged(origin);
        return;
    }
  }

  /** Nothing that it says beside goes on: the one thing that it tells is that they changed. */
  #rootsChanged(origin: Origin): void {
    const method = NOTIFICATIONS.rootsChanged;
    const said = readSaid(this.client, this.state, EMPTY);
    this.#roots.tell(EMPTY, (controller) =>
      this.#opened({ ...NEWS, method, params: EMPTY, said, origin, controller }),
    );
  }

  /** Never rejects. False: a client that is gone hears nothing. */
  async #send(message: string | LargeMessage, about: string | null): Promise<boolean> {
    try {
      return await this.client.send(message, about);
    } catch (thrown) {
      this.#dispatch.bug("send", thrown);
      return false;
    }
  }
}

/** By its client; its time may be over as well. */
function isCancelled({ aborted, reason }: AbortSignal): boolean {
  return aborted && reason instanceof Failure && reason.kind === "cancelled";
}

/** As a key; undefined where it is no id. */
function requestIdOf(paramsText: string): string | undefined {
  try {
    const idText = memberOf(paramsText, "requestId");
    return idText === undefined || !/^["0-9-]/.test(idText) ? undefined : idKeyOf(idText);
  } catch (thrown) {
    if (thrown instanceof Failure) return undefined;
    throw thrown;
  }
}
