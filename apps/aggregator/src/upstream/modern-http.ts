import { setMaxListeners } from "node:events";
import { Failure } from "@capsem/base";
import {
  HTTP_NAME_MEMBERS,
  headersOfCall,
  headerValue,
  itemsOf,
  META_KEYS,
  MODERN_REVISIONS,
  memberOf,
  membersOf,
  NOTIFICATIONS,
  type ParamHeader,
  paramHeaders,
  RPC_CODES,
} from "@capsem/mcp-protocol";
import type { HttpHeader, HttpResponse } from "@capsem/net";
import { EventStreamParser } from "../event-stream.ts";
import { UPSTREAM_LIMITS } from "../limits.ts";
import { textOf as utf8Text } from "../message.ts";
import { CLIENT_INFO } from "../version.ts";
import { readTools } from "./catalog.ts";
import { callMessage, type ErrorIn, isSuccess, POST_HEADERS, readAnswer, readRefusal } from "./exchange.ts";
import { expired, rude } from "./failure.ts";
import { Inbox } from "./inbox.ts";
import { errorParts, internalCall, performInternal } from "./internal-call.ts";
import { Listening } from "./listening.ts";
import type { CallRequest, OpenCall } from "./open-call.ts";
import { type ModernEnvelope, modernParams } from "./params.ts";
import { capabilityNames, factsOf, textOf } from "./server-facts.ts";
import type { ServerFacts, Session, SessionParts } from "./session.ts";
import { started } from "./started.ts";

const PROTOCOL = MODERN_REVISIONS[0];
/** How far past a call's own end an answer's head is waited for: the call's end says it better. */
const HEAD_GRACE_MS = 1_000;

/** 2026-07-28: no session; each request says all. Throws where the server does not speak it. */
export function openModernHttp(parts: SessionParts, signal: AbortSignal): Promise<Session> {
  return started(new ModernHttpSession(parts), signal);
}

class ModernHttpSession implements Session {
  readonly way = "modern";
  readonly #parts: SessionParts;
  readonly #inbox: Inbox;
  readonly #life = new AbortController();
  readonly #listening: Listening;
  readonly #toolHeaders = new Map<string, readonly ParamHeader[]>();
  #facts: ServerFacts | undefined;
  /** JSON, by `logging/setLevel` of somebody behind us. */
  #logLevel: string | null = null;
  #isOver = false;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    setMaxListeners(0, this.#life.signal);
    // There is no way for a server to ask: what it needs to know is a result.
    const post = () => undefined;
    this.#inbox = new Inbox({ told: parts.told, post, mayAsk: false, isShared: false });
    this.#listening = new Listening({
      endpoint: parts.endpoint,
      inbox: this.#inbox,
      signal: this.#life.signal,
      envelope: () => this.#envelope(null),
    });
  }

  get facts(): ServerFacts {
    if (this.#facts === undefined) throw expired();
    return this.#facts;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  async start(signal: AbortSignal): Promise<void> {
    const call = internalCall("server/discover", undefined, UPSTREAM_LIMITS.probeTimeoutMs, signal);
    const members = membersOf(await performInternal(this, call));
    const versions = members.get("supportedVersions");
    const spoken = versions?.startsWith("[") === true ? itemsOf(versions).map(textOf) : [];
    if (!spoken.includes(PROTOCOL)) throw rude(`does not speak ${PROTOCOL}`);
    const meta = members.get("_meta");
    const info = meta?.startsWith("{") === true ? memberOf(meta, META_KEYS.serverInfo) : undefined;
    this.#facts = factsOf(members, info ?? members.get("serverInfo"), PROTOCOL, "modern");
    this.#listening.start(capabilityNames(this.#facts.capabilities));
  }

  async perform(call: OpenCall): Promise<void> {
    if (this.#isOver) throw expired();
    const { method, paramsText } = call.request;
    switch (method) {
      case "ping":
        return call.settle({ kind: "result", text: "{}" });
      case "logging/setLevel":
        this.#logLevel = paramsText === undefined ? null : (memberOf(paramsText, "level") ?? null);
        return call.settle({ kind: "result", text: "{}" });
      case NOTIFICATIONS.rootsChanged:
        // It asks for them by each of its answers that need them.
        return call.settle({ kind: "result", text: "{}" });
      case "resources/subscribe":
      case "resources/unsubscribe":
        return this.#subscribe(call);
    }
    this.#inbox.add(call, () => call.wire.abort(call.signal.reason));
    try {
      await this.#exchange(call);
    } catch (thrown) {
      if (!call.isOver || !(thrown instanceof Failure)) throw thrown;
    } finally {
      this.#inbox.remove(call);
    }
  }

  /** Nothing is asked in this way. */
  respond(): void {
    return;
  }

  /** Nor told beside a request. */
  async tell(): Promise<void> {
    return;
  }

  takeTools(items: readonly string[]): string[] {
    this.#toolHeaders.clear();
    return items.filter((item) => {
      const name = textOf(memberOf(item, "name"));
      const headers = name === null ? [] : paramHeaders(item);
      if (name !== null && headers !== null && headers.length > 0) this.#toolHeaders.set(name, headers);
      return headers !== null;
    });
  }

  async close(): Promise<void> {
    this.#isOver = true;
    this.#life.abort(new Failure("cancelled", "the session is over"));
  }

  async #subscribe(call: OpenCall): Promise<void> {
    const { method, paramsText } = call.request;
    const uri = paramsText === undefined ? null : textOf(memberOf(paramsText, "uri"));
    if (uri === null || uri.length > UPSTREAM_LIMITS.uriCharactersMax) throw rude("is asked for no resource");
    const isWanted = method === "resources/subscribe";
    // The server may take its time for it; who has left does not wait.
    const isListening = await Promise.race([this.#listening.subscribe(uri, isWanted), call.outcome]);
    if (isListening === false) throw rude("has too many subscriptions");
    call.settle({ kind: "result", text: "{}" });
  }

  async #exchange(call: OpenCall): Promise<void> {
    const error = await this.#attempt(call);
    if (error === null) return;
    const isStale =
      call.request.method === "tools/call" && errorParts(error.errorText).code === RPC_CODES.headerMismatch;
    if (isStale) {
      // It was refused before anything was done: by headers of a definition that may have changed since.
      await readTools(this, call.signal);
      const again = await this.#attempt(call);
      if (again !== null) call.settle({ kind: "error", text: again.errorText });
      return;
    }
    call.settle({ kind: "error", text: error.errorText });
  }

  /** Null: the call is over. Else the error that the server refused it with. */
  async #attempt(call: OpenCall): Promise<ErrorIn | null> {
    const { paramsText } = call.request;
    const { text: params, tokenText } = modernParams(paramsText, call.idText, this.#envelope(call));
    call.tokenText = tokenText;
    const { endpoint } = this.#parts;
    const response = await endpoint.send({
      method: "POST",
      headers: this.#headers(call.request),
      message: callMessage(call, params),
      signal: call.wire.signal,
      timeoutMs: call.timeLeftMs + HEAD_GRACE_MS,
    });
    if (!isSuccess(response.status)) return this.#refusal(response, call);
    await readAnswer({ response, call, inbox: this.#inbox, endpoint, parser: new EventStreamParser() });
    if (!call.isOver) throw rude("ends its answer before the result");
    return null;
  }

  async #refusal(response: HttpResponse, call: OpenCall): Promise<ErrorIn> {
    try {
      return await readRefusal(response, call, this.#parts.endpoint);
    } catch (thrown) {
      // Another server may be there by now, of the other era: the next call finds out.
      if (response.status === 400 || response.status === 404 || response.status === 405) this.#isOver = true;
      throw thrown;
    }
  }

  #headers({ method, paramsText, argumentsBytes }: CallRequest): HttpHeader[] {
    const headers: HttpHeader[] = [
      ...POST_HEADERS,
      ["mcp-protocol-version", PROTOCOL],
      ["mcp-method", method],
    ];
    const member = Object.hasOwn(HTTP_NAME_MEMBERS, method) ? HTTP_NAME_MEMBERS[method] : undefined;
    if (member === undefined || paramsText === undefined) return headers;
    const members = membersOf(paramsText);
    const name = textOf(members.get(member));
    if (name === null) return headers;
    headers.push(["mcp-name", headerValue(name)]);
    const declared = method === "tools/call" ? this.#toolHeaders.get(name) : undefined;
    if (declared === undefined) return headers;
    const argumentsText = argumentsBytes === undefined ? members.get("arguments") : utf8Text(argumentsBytes);
    headers.push(...headersOfCall(declared, argumentsText));
    return headers;
  }

  #envelope(call: OpenCall | null): ModernEnvelope {
    const client = call?.request.client ?? { sampling: false, elicitation: false, roots: false };
    return { protocol: PROTOCOL, clientInfo: CLIENT_INFO, client, logLevel: this.#logLevel };
  }
}
