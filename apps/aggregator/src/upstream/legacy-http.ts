import { setMaxListeners } from "node:events";
import { type Deferred, defer, Failure, sleep } from "@capsem/base";
import { NOTIFICATIONS, notificationText } from "@capsem/mcp-protocol";
import type { HttpHeader, HttpResponse } from "@capsem/net";
import { EventStreamParser, readEvents } from "../event-stream.ts";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { discard, headerOf, mediaTypeOf } from "./endpoint.ts";
import {
  callMessage,
  EVENT_STREAM,
  isSuccess,
  POST_HEADERS,
  readAnswer,
  readRefusal,
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

/** How far past a call's own end an answer's head is waited for: the call's end says it better. */
const HEAD_GRACE_MS = 1_000;

/** Streamable HTTP, 2025-11-25 and older. Throws what the handshake ends with. */
export function openLegacyHttp(parts: SessionParts, signal: AbortSignal): Promise<Session> {
  return started(new LegacyHttpSession(parts), signal);
}

class LegacyHttpSession implements Session {
  readonly way = "http";
  readonly #parts: SessionParts;
  readonly #inbox: Inbox;
  readonly #life = new AbortController();
  #facts: ServerFacts | undefined;
  #sessionId: string | undefined;
  /** Whether the server may say something that belongs to no call: until it says that it has no such stream. */
  #mayListen = true;
  /** Whose answers are to come there. */
  readonly #elsewhere = new Set<OpenCall>();
  #isOver = false;
  /** Resolves when the last call of a session that takes no more has ended. */
  #idle: Deferred<void> | undefined;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    // Each request listens to it.
    setMaxListeners(0, this.#life.signal);
    const post = (text: string) => this.respond(text);
    this.#inbox = new Inbox({ told: parts.told, post, mayAsk: true, isShared: false });
  }

  get facts(): ServerFacts {
    if (this.#facts === undefined) throw expired();
    return this.#facts;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  async start(signal: AbortSignal): Promise<void> {
    const call = internalCall("initialize", INITIALIZE_PARAMS, UPSTREAM_LIMITS.stepTimeoutMs, signal);
    this.#facts = handshakeFacts(await performInternal(this, call));
    await this.#notice(notificationText(NOTIFICATIONS.initialized));
    inBackground(this.#listen().finally(() => this.#deaf()));
  }

  async perform(call: OpenCall): Promise<void> {
    if (this.#isOver) throw expired();
    if (isNews(call.request.method)) return performNews(call, this.#inbox, this);
    this.#inbox.add(call, () => this.#cancelled(call));
    try {
      await this.#exchange(call);
    } catch (thrown) {
      // Whatever comes of an exchange that nobody waits for is nobody's.
      if (!call.isOver || !(thrown instanceof Failure)) throw thrown;
    } finally {
      this.#inbox.remove(call);
      if (this.#inbox.openCount === 0) this.#idle?.resolve();
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
    const hadSession = this.#sessionId !== undefined && !this.#isOver;
    this.#isOver = true;
    // What the server says to them, and is told of them, goes by what belongs to no call.
    if (this.#inbox.openCount > 0) {
      this.#idle ??= defer();
      await this.#idle.promise;
    }
    this.#life.abort(new Failure("cancelled", "the session is over"));
    if (!hadSession) return;
    try {
      const { endpoint } = this.#parts;
      const timeoutMs = UPSTREAM_LIMITS.cancelTimeoutMs;
      const signal = AbortSignal.timeout(timeoutMs);
      const response = await endpoint.send({ method: "DELETE", headers: this.#headers(), signal, timeoutMs });
      discard(response.body);
    } catch (thrown) {
      if (!(thrown instanceof Failure)) throw thrown;
    }
  }

  async #exchange(call: OpenCall): Promise<void> {
    const { method, paramsText } = call.request;
    const { text: params, tokenText } = legacyParams(paramsText, call.idText);
    call.tokenText = tokenText;
    const { endpoint } = this.#parts;
    const sentWith = this.#sessionId;
    const response = await endpoint.send({
      method: "POST",
      headers: [...POST_HEADERS, ...this.#headers()],
      message: callMessage(call, params),
      signal: call.wire.signal,
      timeoutMs: call.timeLeftMs + HEAD_GRACE_MS,
    });
    if (response.status === 404 && sentWith !== undefined) {
      discard(response.body);
      this.#isOver = true;
      throw expired();
    }
    if (!isSuccess(response.status)) return this.#refused(response, call);
    if (method === "initialize") this.#takeSessionId(response);
    if (response.status === 202 || response.status === 204) return this.#awaitElsewhere(response, call);
    await this.#readToEnd(response, call);
  }

  async #refused(response: HttpResponse, call: OpenCall): Promise<void> {
    try {
      const { errorText } = await readRefusal(response, call, this.#parts.endpoint);
      call.settle({ kind: "error", text: errorText });
    } catch (thrown) {
      // It may be that it knows the session no more and does not say so as it should: the next call opens one.
      if (response.status === 400 || response.status === 404 || response.status === 405) this.#isOver = true;
      throw thrown;
    }
  }

  /** Some servers answer on the stream that belongs to no call. */
  async #awaitElsewhere({ body }: HttpResponse, call: OpenCall): Promise<void> {
    discard(body);
    if (!this.#mayListen) throw answersNothing();
    this.#elsewhere.add(call);
    try {
      await call.outcome;
    } finally {
      this.#elsewhere.delete(call);
    }
  }

  /** An event stream that ends before the answer is asked for again, from where it ended. */
  async #readToEnd(first: HttpResponse, call: OpenCall): Promise<void> {
    const { endpoint } = this.#parts;
    const parser = new EventStreamParser();
    const reading = { call, inbox: this.#inbox, endpoint, parser };
    let response: HttpResponse | null = first;
    for (let barren = 0; barren <= UPSTREAM_LIMITS.resumesMax; barren += 1) {
      const before: string | undefined = parser.lastEventId;
      const cut = response === null ? null : await this.#cutOf(readAnswer({ ...reading, response }));
      if (call.isOver) return;
      const from = parser.lastEventId;
      if (from === undefined) throw cut ?? rude("ends its answer before the result");
      if (from !== before) barren = 0;
      await sleep(retryDelay(parser), call.signal);
      parser.restart();
      response = await this.#resume(call, from);
    }
    throw rude("ends its answer before the result, again and again");
  }

  /** Null: it came to its end. A cut is returned; what the server did wrong is thrown. */
  async #cutOf(reading: Promise<void>): Promise<Failure | null> {
    try {
      await reading;
      return null;
    } catch (thrown) {
      if (
        thrown instanceof Failure &&
        (thrown.detail === "upstream_failed" || thrown.detail === "egress_lost")
      ) {
        return thrown;
      }
      throw thrown;
    }
  }

  /** Null: not now. */
  async #resume(call: OpenCall, lastEventId: string): Promise<HttpResponse | null> {
    try {
      const response = await this.#get(lastEventId, call.wire.signal);
      if (response.status === 200 && mediaTypeOf(response) === EVENT_STREAM) return response;
      discard(response.body);
      if (response.status < 500) throw rude(`answers HTTP ${response.status} when asked for the rest`);
      return null;
    } catch (thrown) {
      if (!(thrown instanceof Failure) || thrown.detail === undefined) throw thrown;
      return null;
    }
  }

  /** The stream of what belongs to no call, for as long as the session lives, if the server has one. */
  async #listen(): Promise<void> {
    const parser = new EventStreamParser();
    const meter = new StreamMeter(UPSTREAM_LIMITS.streamBytesMax);
    for (let failures = 0; !this.#life.signal.aborted; ) {
      const heard = await this.#listenOnce(parser, (bytes) => meter.count(bytes));
      if (heard === "none") return;
      failures = heard === "ended" ? 0 : failures + 1;
      const delayMs = Math.min(retryDelay(parser) * 2 ** Math.min(failures, 10), UPSTREAM_LIMITS.retryMsMax);
      await sleep(delayMs, this.#life.signal);
      parser.restart();
    }
  }

  /** Nothing comes there any more, nor do the answers that were to. */
  #deaf(): void {
    this.#mayListen = false;
    for (const call of [...this.#elsewhere]) call.lose(answersNothing());
  }

  async #listenOnce(
    parser: EventStreamParser,
    count: (bytes: number) => void,
  ): Promise<"none" | "ended" | "failed"> {
    const { endpoint } = this.#parts;
    let response: HttpResponse | undefined;
    try {
      response = await this.#get(parser.lastEventId, this.#life.signal);
      if (response.status === 404 && this.#sessionId !== undefined) this.#isOver = true;
      if (response.status !== 200 || mediaTypeOf(response) !== EVENT_STREAM) {
        return response.status < 500 ? "none" : "failed";
      }
      const { body } = response;
      for await (const { type, data } of readEvents({ body, parser, budget: endpoint.budget, count })) {
        if (type === "message") await this.#inbox.receive(data, null);
      }
      return "ended";
    } catch (thrown) {
      asUpstreamFailure(thrown);
      return "failed";
    } finally {
      response?.body.cancel();
    }
  }

  #get(lastEventId: string | undefined, signal: AbortSignal): Promise<HttpResponse> {
    const headers: HttpHeader[] = [["accept", EVENT_STREAM], ...this.#headers()];
    if (lastEventId !== undefined) headers.push(["last-event-id", lastEventId]);
    return this.#parts.endpoint.send({ method: "GET", headers, signal, timeoutMs: null });
  }

  #cancelled(call: OpenCall): void {
    const abort = () => call.wire.abort(call.signal.reason);
    // A handshake is not cancelled by a message.
    if (this.#life.signal.aborted || this.#facts === undefined) {
      abort();
      return;
    }
    const params = JSON.stringify({ requestId: Number(call.idText), reason: "cancelled" });
    const text = notificationText(NOTIFICATIONS.cancelled, params);
    inBackground(this.#notice(text, UPSTREAM_LIMITS.cancelTimeoutMs).finally(abort));
  }

  #notice(text: string, timeoutMs?: number): Promise<number | null> {
    return sendNotice(this.#parts.endpoint, this.#headers(), text, this.#life.signal, timeoutMs);
  }

  #headers(): HttpHeader[] {
    const headers: HttpHeader[] = [];
    if (this.#sessionId !== undefined) headers.push(["mcp-session-id", this.#sessionId]);
    if (this.#facts !== undefined) headers.push(["mcp-protocol-version", this.#facts.protocol]);
    return headers;
  }

  #takeSessionId(response: HttpResponse): void {
    const id = headerOf(response, "mcp-session-id");
    if (id === undefined || id === "") return;
    const isPlain = id.length <= UPSTREAM_LIMITS.sessionIdCharactersMax && /^[\x21-\x7e]+$/.test(id);
    if (!isPlain) {
      response.body.cancel();
      throw rude("gives a session id that no header can hold");
    }
    this.#sessionId = id;
  }
}

function answersNothing(): Failure {
  return rude("takes the request and answers nothing");
}

/** When the server wants to be asked again, within reason. */
export function retryDelay({ retryMs }: EventStreamParser): number {
  const { retryMsMin, retryMsMax } = UPSTREAM_LIMITS;
  return Math.min(Math.max(retryMs ?? UPSTREAM_LIMITS.retryMs, retryMsMin), retryMsMax);
}
