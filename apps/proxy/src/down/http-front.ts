import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { Failure, messageOf } from "@capsem/base";
import { type Envelope, envelopeErrorCode, RPC_CODES, readEnvelope } from "@capsem/mcp-protocol";
import type { MuxStream } from "@capsem/wire";
import type { Origin, Rail } from "../conversation.ts";
import type { ByteBudget } from "./byte-budget.ts";
import { acknowledge, type HttpRefusal, refuse } from "./http-answer.ts";
import { readBody } from "./http-body.ts";
import {
  type Accepts,
  acceptsOf,
  headerOf,
  isJson,
  isOriginAllowed,
  isOurs,
  MCP_PATH,
  paramHeadersOf,
  parseHost,
  targetOf,
} from "./http-checks.ts";
import { eraOfRequest, type KnownEra } from "./http-era.ts";
import { HttpExchange } from "./http-exchange.ts";
import type { HttpSession } from "./http-session.ts";
import { HttpSessions } from "./http-sessions.ts";
import { HttpVisit } from "./http-visit.ts";
import type { DownLimits } from "./limits.ts";
import { LoneClient } from "./lone-client.ts";
import { StreamDuplex } from "./stream-duplex.ts";

export interface HttpFrontOptions {
  readonly rail: Rail;
  readonly newSessionId: () => string;
  readonly nowMs: () => number;
  readonly begun: ByteBudget;
  readonly limits: DownLimits;
  /** A bug of ours, which took one connection with it. */
  readonly report: (thrown: unknown) => void;
}

/** A POST whose message could be read. */
interface Posted {
  readonly visit: HttpVisit;
  readonly text: string;
  readonly message: Envelope;
  readonly accepts: Accepts;
  readonly origin: Origin;
}

const SESSION_HEADER = "mcp-session-id";
const NO_HEADERS = {};

/** MCP over HTTP/1.1 on streams of a lane. Nothing listens: each stream is given as a connection. */
export class HttpFront {
  readonly #options: HttpFrontOptions;
  readonly #server: Server;
  readonly #sessions: HttpSessions;
  readonly #connections = new Set<StreamDuplex>();
  #requests = 0;

  constructor(options: HttpFrontOptions) {
    this.#options = options;
    const { rail, newSessionId, nowMs, limits } = options;
    this.#sessions = new HttpSessions({ rail, newId: newSessionId, nowMs, limits });
    this.#server = createServer({ maxHeaderSize: limits.headerBytesMax, keepAliveTimeout: 0 });
    this.#server.on("request", (request: IncomingMessage, response: ServerResponse) => {
      this.#serve(new HttpVisit(request, response));
    });
    this.#server.on("connect", (request: IncomingMessage, socket: unknown) =>
      this.#refuseTunnel(request, socket),
    );
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  /** Characters that are kept for clients that may come back. */
  get keptChars(): number {
    return this.#sessions.keptChars;
  }

  get connectionCount(): number {
    return this.#connections.size;
  }

  /** Takes the stream over. */
  accept(stream: MuxStream, processName: string | null): void {
    const duplex = new StreamDuplex(stream, processName, this.#options.limits);
    this.#connections.add(duplex);
    duplex.once("close", () => this.#connections.delete(duplex));
    // Who resets its connection is told so by the close; HTTP has nothing to add.
    duplex.on("error", () => duplex.destroy());
    duplex.waitForRequest();
    this.#server.emit("connection", duplex);
  }

  close(): void {
    this.#sessions.closeAll();
    for (const duplex of this.#connections) duplex.destroy();
  }

  #serve(visit: HttpVisit): void {
    this.#requests += 1;
    visit.onOver(() => {
      this.#requests -= 1;
    });
    this.#route(visit).catch((thrown: unknown) => {
      if (thrown instanceof Failure) refuse(visit.response, refusalOf(thrown));
      else {
        visit.response.destroy();
        this.#options.report(thrown);
      }
    });
  }

  async #route(visit: HttpVisit): Promise<void> {
    const { request, response } = visit;
    const target = targetOf(request);
    const isHere = isOurs(target);
    if (!isHere || !isOriginAllowed(request.headers.origin)) {
      this.#reserve(request, target, visit.processName);
      const what = isHere ? "its origin is not this one" : `"${target.host}" is not served`;
      return refuse(response, refusalWith(403, RPC_CODES.invalidRequest, what, { closes: true }));
    }
    if (target.path !== MCP_PATH) {
      return refuse(response, refusalWith(404, RPC_CODES.invalidRequest, `only ${MCP_PATH} is served`));
    }
    if (request.method === "POST") return await this.#post(visit);
    const session = this.#sessionOf(request, response);
    if (session === undefined) return;
    if (request.method === "DELETE") {
      this.#sessions.close(session);
      return acknowledge(response, 204);
    }
    this.#stand(visit, session);
  }

  /** What GET and DELETE need; undefined: the answer was given. */
  #sessionOf(request: IncomingMessage, response: ServerResponse): HttpSession | undefined {
    const id = headerOf(request, SESSION_HEADER);
    if (id === undefined || (request.method !== "GET" && request.method !== "DELETE")) {
      const headers = { Allow: id === undefined ? "POST" : "POST, GET, DELETE" };
      refuse(response, refusalWith(405, RPC_CODES.invalidRequest, "the method is not served", { headers }));
      return undefined;
    }
    const session = this.#sessions.use(id);
    if (session === undefined) refuse(response, noSession(null));
    return session;
  }

  /** The stream for what belongs to no request, or the rest of one that was cut. */
  #stand(visit: HttpVisit, session: HttpSession): void {
    const { request, response } = visit;
    if (!acceptsOf(request.headers.accept).stream) {
      refuse(response, refusalWith(406, RPC_CODES.invalidRequest, "the answer is an event stream"));
      return;
    }
    const lastEventId = headerOf(request, "last-event-id");
    const resumed = lastEventId === undefined ? "stand" : session.resume(lastEventId, visit);
    if (resumed === "resumed") return;
    if (resumed === "gone") {
      refuse(response, refusalWith(400, RPC_CODES.invalidRequest, "nothing is kept of this event's stream"));
      return;
    }
    if (session.hasStanding) {
      refuse(response, refusalWith(409, RPC_CODES.invalidRequest, "the session has its stream"));
      return;
    }
    const stream = session.stand(visit);
    if (isPrimed(headerOf(request, "mcp-protocol-version"))) stream.prime();
    else stream.comment();
  }

  async #post(visit: HttpVisit): Promise<void> {
    const { request, response, processName } = visit;
    const { limits, begun } = this.#options;
    const accepts = acceptsOf(request.headers.accept);
    const encoding = request.headers["content-encoding"] ?? "identity";
    if (!isJson(request.headers["content-type"]) || encoding !== "identity") {
      return refuse(
        response,
        refusalWith(415, RPC_CODES.invalidRequest, "the body is to be application/json"),
      );
    }
    if (!accepts.json && !accepts.stream) {
      const what = "the answer is application/json or text/event-stream";
      return refuse(response, refusalWith(406, RPC_CODES.invalidRequest, what));
    }
    if (this.#requests > limits.requestsMax) {
      const what = `${limits.requestsMax} are not answered yet`;
      return refuse(response, refusalWith(503, RPC_CODES.internalError, what, { closes: true }));
    }
    const text = await readBody(request, begun, limits);
    const message = readEnvelope(text);
    await this.#take({ visit, text, message, accepts, origin: { processName } });
  }

  async #take(posted: Posted): Promise<void> {
    const { message } = posted;
    const { request, response } = posted.visit;
    const era = eraOfRequest(message, {
      version: headerOf(request, "mcp-protocol-version"),
      method: headerOf(request, "mcp-method"),
      name: headerOf(request, "mcp-name"),
    });
    const idText = message.kind === "request" ? message.idText : null;
    if (era.kind === "refused") {
      const { code, message: words, data } = era;
      return refuse(response, { status: 400, code, message: words, data, idText });
    }
    const sessionId = era.kind === "legacy" ? headerOf(request, SESSION_HEADER) : undefined;
    if (sessionId !== undefined) {
      const session = this.#sessions.use(sessionId);
      if (session === undefined) return refuse(response, noSession(idText));
      return await this.#inSession(posted, session, era.revision);
    }
    const isStart = message.kind === "request" && message.method === "initialize" && era.kind === "legacy";
    if (!isStart) return await this.#alone(posted, era);
    const session = this.#sessions.open();
    if (session === undefined) {
      const what = "all sessions are in use";
      return refuse(response, refusalWith(503, RPC_CODES.internalError, what, { idText }));
    }
    await this.#inSession(posted, session, null);
  }

  /** `revision` as the request says it; null: it begins the session. */
  async #inSession(posted: Posted, session: HttpSession, revision: string | null): Promise<void> {
    const { visit, text, message, origin, accepts } = posted;
    const { response } = visit;
    if (message.kind !== "request") {
      void session.tell(text, origin);
      return acknowledge(response, 202);
    }
    const { idText } = message;
    if (session.has(idText)) {
      const what = "another with its id is not answered yet";
      return refuse(response, refusalWith(400, RPC_CODES.invalidRequest, what, { idText }));
    }
    const { limits } = this.#options;
    // A session whose start was refused is none.
    let isStarted = revision !== null;
    const openResumable = () => {
      const stream = session.openStream(visit, () => {
        exchange.close();
        session.cancel(idText, origin);
      });
      if (isPrimed(revision ?? undefined)) stream.prime();
      return stream;
    };
    const exchange: HttpExchange = new HttpExchange({
      visit,
      accepts,
      canAnswer: true,
      isModern: false,
      limits,
      headers: (first) => {
        if (first !== "error") isStarted = true;
        return isStarted ? session.headers : NO_HEADERS;
      },
      openResumable: isStarted ? openResumable : undefined,
    });
    const done = session.call(text, idText, origin, exchange);
    visit.onOver(() => {
      if (!visit.isAnswered && !exchange.mayComeBack) session.cancel(idText, origin);
    });
    await done;
    exchange.finish();
    if (!isStarted) this.#sessions.close(session);
  }

  async #alone(posted: Posted, era: KnownEra): Promise<void> {
    const { visit, text, message, origin, accepts } = posted;
    const { response } = visit;
    const { rail, limits } = this.#options;
    if (message.kind === "result" || message.kind === "error") {
      const what = "an answer needs the session of its request";
      return refuse(response, refusalWith(400, RPC_CODES.invalidRequest, what));
    }
    if (message.kind === "notification") {
      acknowledge(response, 202);
      const client = new LoneClient(rail, era.revision, undefined);
      await client.conversation.receive(text, origin);
      return client.close();
    }
    const isModern = era.kind === "modern";
    const exchange = new HttpExchange({
      ...{ visit, accepts, canAnswer: false, isModern, limits },
      ...{ headers: () => NO_HEADERS, openResumable: undefined },
    });
    const repeated = isModern ? paramHeadersOf(visit.request) : undefined;
    const client = new LoneClient(rail, era.revision, exchange, repeated);
    visit.onOver(() => client.close());
    await client.conversation.receive(text, origin);
    exchange.finish();
  }

  #reserve(
    request: Pick<IncomingMessage, "method">,
    target: { host: string; port: number | null; path: string },
    processName: string | null,
  ): void {
    this.#options.rail.reserved({
      host: target.host,
      port: target.port,
      method: request.method ?? null,
      path: target.path.slice(0, this.#options.limits.pathCharsMax),
      processName,
      status: 403,
    });
  }

  /** CONNECT names another host by what it is. */
  #refuseTunnel(request: IncomingMessage, socket: unknown): void {
    if (!(socket instanceof StreamDuplex)) return;
    const target = parseHost(request.url ?? "") ?? { host: "", port: null };
    this.#reserve(request, { ...target, path: "" }, socket.processName);
    socket.end("HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    socket.resume();
  }
}

/** Clients of before take an event without data for a message that is none. */
function isPrimed(revision: string | undefined): boolean {
  return revision !== undefined && revision >= "2025-11-25";
}

function refusalWith(
  status: number,
  code: number,
  reason: string,
  rest: Partial<HttpRefusal> = {},
): HttpRefusal {
  return { status, code, message: `Cannot take request: ${reason}`, ...rest };
}

function noSession(idText: string | null): HttpRefusal {
  return refusalWith(404, RPC_CODES.sessionNotFound, "there is no such session", { idText });
}

const STATUSES: Readonly<Record<string, number>> = {
  too_large: 413,
  busy: 503,
  timeout: 408,
  cancelled: 499,
};

function refusalOf(failure: Failure): HttpRefusal {
  const status = STATUSES[failure.kind];
  const message = messageOf(failure);
  if (status !== undefined) return { status, code: RPC_CODES.invalidRequest, message, closes: true };
  const code = failure.kind === "not_utf8" ? RPC_CODES.parseError : envelopeErrorCode(failure);
  const idText = failure.facts?.id_text;
  return { status: 400, code, message, idText: typeof idText === "string" ? idText : null };
}
