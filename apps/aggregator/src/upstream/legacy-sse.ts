import { setMaxListeners } from "node:events";
import { Failure, within } from "@capsem/base";
import { NOTIFICATIONS, notificationText } from "@capsem/mcp-protocol";
import type { HttpHeader, HttpResponse } from "@capsem/net";
import { EventStreamParser, readEvents } from "../event-stream.ts";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { textOf } from "../message.ts";
import { discard, type Endpoint, mediaTypeOf } from "./endpoint.ts";
import {
  callMessage,
  EVENT_STREAM,
  isSuccess,
  POST_HEADERS,
  readRefusal,
  refusalText,
  refused,
  sendNotice,
} from "./exchange.ts";
import { asUpstreamFailure, expired, inBackground, rude } from "./failure.ts";
import { handshakeFacts, INITIALIZE_PARAMS } from "./handshake.ts";
import { Inbox } from "./inbox.ts";
import { internalCall, performInternal } from "./internal-call.ts";
import { performNews } from "./news.ts";
import { isNews, type OpenCall } from "./open-call.ts";
import { legacyParams } from "./params.ts";
import type { ServerFacts, Session, SessionParts } from "./session.ts";
import { started } from "./started.ts";
import { StreamMeter } from "./stream-meter.ts";

/** HTTP+SSE of 2024-11-05: one stream for all that the server says, and an address for what it is told. */
export function openLegacySse(parts: SessionParts, signal: AbortSignal): Promise<Session> {
  return started(new LegacySseSession(parts), signal);
}

class LegacySseSession implements Session {
  readonly way = "sse";
  readonly #parts: SessionParts;
  readonly #inbox: Inbox;
  readonly #life = new AbortController();
  /** Where messages go. */
  #address: Endpoint | undefined;
  #facts: ServerFacts | undefined;
  #isOver = false;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    // Each request listens to it.
    setMaxListeners(0, this.#life.signal);
    const post = (text: string) => this.respond(text);
    this.#inbox = new Inbox({ told: parts.told, post, mayAsk: true, isShared: true });
  }

  get facts(): ServerFacts {
    if (this.#facts === undefined) throw expired();
    return this.#facts;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  async start(signal: AbortSignal): Promise<void> {
    const timeoutMs = UPSTREAM_LIMITS.stepTimeoutMs;
    const response = await this.#parts.endpoint.send({
      method: "GET",
      headers: [["accept", EVENT_STREAM]],
      signal: this.#life.signal,
      timeoutMs,
    });
    if (!isSuccess(response.status)) {
      throw refused(response.status, await refusalText(response, this.#parts.endpoint));
    }
    if (mediaTypeOf(response) !== EVENT_STREAM) {
      response.body.cancel();
      throw rude("has no event stream");
    }
    const late = () => new Failure("timeout", "it names no endpoint in its event stream");
    await within(this.#named(response), timeoutMs, late, signal);
    const call = internalCall("initialize", INITIALIZE_PARAMS, timeoutMs, signal);
    this.#facts = handshakeFacts(await performInternal(this, call));
    await this.#notice(notificationText(NOTIFICATIONS.initialized));
  }

  async perform(call: OpenCall): Promise<void> {
    const address = this.#address;
    if (this.#isOver || address === undefined) throw expired();
    if (isNews(call.request.method)) return performNews(call, this.#inbox, this);
    this.#inbox.add(call, () => this.#cancelled(call));
    try {
      await this.#exchange(call, address);
    } catch (thrown) {
      if (!call.isOver || !(thrown instanceof Failure)) throw thrown;
    } finally {
      this.#inbox.remove(call);
    }
  }

  respond(text: string): void {
    inBackground(this.#notice(text));
  }

  async tell(text: string): Promise<void> {
    await this.#notice(text);
  }

  takeTools(items: readonly string[]): string[] {
    return [...items];
  }

  async close(): Promise<void> {
    this.#end(rude("is no longer declared as it was"));
  }

  async #exchange(call: OpenCall, address: Endpoint): Promise<void> {
    const { text: params, tokenText } = legacyParams(call.request.paramsText, call.idText);
    call.tokenText = tokenText;
    const response = await address.send({
      method: "POST",
      headers: [...POST_HEADERS, ...this.#headers()],
      message: callMessage(call, params),
      signal: call.wire.signal,
      timeoutMs: call.timeLeftMs,
    });
    if (isSuccess(response.status)) {
      discard(response.body);
      await call.outcome;
      return;
    }
    const { errorText } = await readRefusal(response, call, address);
    call.settle({ kind: "error", text: errorText });
  }

  /** Resolves when the server has said where messages go; the stream is read on until the session is over. */
  #named(response: HttpResponse): Promise<void> {
    return new Promise((resolve, reject) => {
      const failed = (thrown: unknown) => {
        const failure = asUpstreamFailure(thrown);
        this.#end(failure);
        reject(failure);
      };
      inBackground(this.#listen(response, resolve).catch(failed));
    });
  }

  async #listen({ body }: HttpResponse, named: () => void): Promise<void> {
    const { budget } = this.#parts.endpoint;
    const meter = new StreamMeter(UPSTREAM_LIMITS.sharedStreamBytesMax);
    const count = (bytes: number) => meter.count(bytes);
    try {
      const parser = new EventStreamParser();
      for await (const { type, data } of readEvents({ body, parser, budget, count })) {
        if (type === "endpoint") {
          this.#address ??= this.#parts.endpoint.at(textOf(data));
          named();
        } else if (type === "message") await this.#inbox.receive(data, null);
      }
    } finally {
      body.cancel();
    }
    throw rude("ended its event stream");
  }

  #cancelled(call: OpenCall): void {
    const abort = () => call.wire.abort(call.signal.reason);
    if (this.#isOver || this.#facts === undefined) {
      abort();
      return;
    }
    const params = JSON.stringify({ requestId: Number(call.idText), reason: "cancelled" });
    const text = notificationText(NOTIFICATIONS.cancelled, params);
    inBackground(this.#notice(text, UPSTREAM_LIMITS.cancelTimeoutMs).finally(abort));
  }

  async #notice(text: string, timeoutMs?: number): Promise<void> {
    if (this.#address === undefined) return;
    await sendNotice(this.#address, this.#headers(), text, this.#life.signal, timeoutMs);
  }

  #headers(): HttpHeader[] {
    return this.#facts === undefined ? [] : [["mcp-protocol-version", this.#facts.protocol]];
  }

  #end(failure: Failure): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#life.abort(failure);
    this.#inbox.failAll(() => failure);
  }
}
