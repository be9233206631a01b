import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { apiFailure, matchRoute, ROUTES, type RouteMatch } from "@capsem/api";
import { assert, VM_ID_PATTERN } from "@capsem/base";
import type { Act, Principal } from "../act.ts";
import type { FrameSocket } from "../job/frame-socket.ts";
import { HTTP_LIMITS } from "../limits.ts";
import { acceptWebSocket, checkProtocol, socketRouteOf } from "../websocket.ts";
import { actContext } from "./act-context.ts";
import { errorBody } from "./error-body.ts";
import { limitFirstRequest } from "./first-request.ts";
import type { Answer, Handlers, RouteCall } from "./handler.ts";
import { parseBody, parseParts, routeOf } from "./parse-call.ts";
import { bodyOf } from "./peeked-body.ts";
import { readJsonBody } from "./request-body.ts";
import { sendAnswer, sendJson } from "./send-answer.ts";

export interface ApiServerOptions {
  readonly handlers: Handlers;
  readonly act: Act;
  /** Tests check every answer against its schema; in the product our own answers are trusted. */
  readonly checksAnswers: boolean;
  /** For the trace of a request that comes without one. */
  readonly random: (bytes: number) => Uint8Array;
}

export interface ApiServer {
  /** Serves a connected socket whose other end is `principal`. */
  handleConnection(socket: Duplex, principal: Principal): void;
  /** For a listener: every connection it takes is `principal`'s. */
  readonly http: Server;
  close(): Promise<void>;
}

/** The HTTP front: it takes connected sockets with a principal; a listener is only one source of them. */
export function createApiServer(options: ApiServerOptions, listenerPrincipal: Principal): ApiServer {
  const principals = new WeakMap<Duplex, Principal>();
  /** Not the HTTP server's any more, but its end waits for them. */
  const upgraded = new Set<Duplex>();
  const http = createServer({
    maxHeaderSize: HTTP_LIMITS.headerBytesMax,
    headersTimeout: HTTP_LIMITS.headersTimeoutMs,
    // Uploads and long execs have no time limit of their own here.
    requestTimeout: 0,
    keepAliveTimeout: HTTP_LIMITS.keepAliveTimeoutMs,
    connectionsCheckingInterval: HTTP_LIMITS.connectionsCheckMs,
  });
  http.maxConnections = HTTP_LIMITS.connectionsMax;
  limitFirstRequest(http, HTTP_LIMITS.headersTimeoutMs);
  const principalOf = (socket: Duplex) => principals.get(socket) ?? listenerPrincipal;
  http.on("request", (request: IncomingMessage, response: ServerResponse) => {
    void serve(options, request, response, principalOf(request.socket));
  });
  http.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => {
    response.writeContinue();
    void serve(options, request, response, principalOf(request.socket));
  });
  http.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    upgraded.add(socket);
    socket.once("close", () => upgraded.delete(socket));
    void serveUpgrade(options, request, socket, head, principalOf(socket));
  });
  return {
    http,
    handleConnection(socket, principal) {
      principals.set(socket, principal);
      http.emit("connection", socket);
    },
    close() {
      return new Promise((resolve) => {
        http.close(() => resolve());
        http.closeIdleConnections();
        setTimeout(() => {
          http.closeAllConnections();
          for (const socket of upgraded) socket.destroy();
        }, CLOSE_TIMEOUT_MS).unref();
      });
    },
  };
}

/** How long answers under way may take to leave when the service stops. */
const CLOSE_TIMEOUT_MS = 500;

async function serve(
  options: ApiServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
  principal: Principal,
): Promise<void> {
  const gone = new AbortController();
  response.on("close", () => {
    if (!response.writableFinished) gone.abort();
  });
  try {
    const { match, search } = find(request);
    if (routeOf(match).request === "websocket") {
      throw apiFailure("invalid_input", "Cannot serve the request: the route is a WebSocket");
    }
    const parts = parseParts(match, search);
    const body =
      routeOf(match).request === "json" ? parseBody(match, await readJsonBody(request)) : undefined;
    const context = actContext(request, principal, gone.signal, options.random);
    const call = { ...parts, body, context, bytes: bodyOf(request), openSocket: noSocket };
    await options.act(context, eventOf(match), async () => {
      const answer = await handle(options, match, call);
      await sendAnswer(response, answer);
    });
  } catch (thrown) {
    refuse(request, response, thrown);
  }
}

async function serveUpgrade(
  options: ApiServerOptions,
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  principal: Principal,
): Promise<void> {
  const gone = new AbortController();
  let isAccepted = false;
  socket.on("close", () => gone.abort());
  socket.on("error", () => gone.abort());
  try {
    const { match, search } = find(request);
    const route = socketRouteOf(match.name);
    if (route === null) {
      throw apiFailure("invalid_input", "Cannot upgrade the request: the route is no WebSocket");
    }
    checkProtocol(request, route);
    const parts = parseParts(match, search);
    const context = actContext(request, principal, gone.signal, options.random);
    const openSocket = (): Promise<FrameSocket> => {
      isAccepted = true;
      return acceptWebSocket(request, socket, head, route);
    };
    const call = { ...parts, body: undefined, context, bytes: bodyOf(request), openSocket };
    await options.act(context, eventOf(match), async () => {
      await handle(options, match, call);
    });
  } catch (thrown) {
    if (isAccepted) socket.destroy();
    else refuseUpgrade(socket, thrown);
  }
}

function find(request: IncomingMessage): { match: RouteMatch; search: string } {
  const url = request.url ?? "/";
  const cut = url.indexOf("?");
  const pathname = cut === -1 ? url : url.slice(0, cut);
  const match = matchRoute(request.method ?? "", pathname);
  if (match === null) {
    throw apiFailure(
      "route_not_found",
      `Cannot serve ${request.method} ${pathname.slice(0, 200)}: no such route`,
    );
  }
  return { match, search: cut === -1 ? "" : url.slice(cut + 1) };
}

/** The call has been parsed by the schemas of this very route, which the types cannot follow. */
async function handle(
  options: ApiServerOptions,
  match: RouteMatch,
  call: Omit<RouteCall<never>, "params" | "query" | "body"> & {
    params: unknown;
    query: unknown;
    body: unknown;
  },
): Promise<Answer<never>> {
  const handler = options.handlers[match.name] as (call: unknown) => Promise<Answer<never>>;
  const answer = await handler(call);
  if (options.checksAnswers && answer.kind === "json") {
    const checked = routeOf(match).result?.safeParse(answer.value);
    assert(checked?.success !== false, `the answer of ${match.name} has another shape: ${checked?.error}`);
  }
  return answer;
}

function eventOf(match: RouteMatch) {
  return { route: match.name, mutates: ROUTES[match.name].mutates, vmId: vmIdOf(match) };
}

/** Only these paths name a VM, or `host`: what stands in others may look like its id, as a server's name can. */
function vmIdOf({ name, params }: RouteMatch): string | null {
  const { path } = ROUTES[name];
  const named = path.startsWith("/vms/{id}/") ? params.id : undefined;
  const id = path.startsWith("/ledgers/{vm_id}/") ? params.vm_id : named;
  return id !== undefined && VM_ID_PATTERN.test(id) ? id : null;
}

async function noSocket(): Promise<FrameSocket> {
  throw apiFailure("internal", "Cannot open a WebSocket on an HTTP request");
}

/** An answer that has begun can only be cut: the client sees an aborted body, never a short success. */
function refuse(request: IncomingMessage, response: ServerResponse, thrown: unknown): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const body = errorBody(thrown);
  if (request.complete) {
    sendJson(response, body.error.status, body);
    return;
  }
  // Whole, but not ended: closing a connection with unread bytes resets it, and the answer would be lost.
  const text = JSON.stringify(body);
  response.writeHead(body.error.status, {
    connection: "close",
    "content-type": "application/json",
    "content-length": Buffer.byteLength(text),
  });
  response.write(text);
  discard(request, () => response.end());
}

/** Lets a client that still sends read our answer; what it sends above a limit, or for long, is cut. */
function discard(request: IncomingMessage, done: () => void): void {
  let bytes = 0;
  const timer = setTimeout(done, REFUSED_BODY_MS);
  const stop = () => {
    clearTimeout(timer);
    done();
  };
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > HTTP_LIMITS.refusedBodyBytesMax) stop();
  });
  request.once("end", stop).once("close", stop);
  request.resume();
}

/** What a client that was refused in the middle of its body gets to notice. */
const REFUSED_BODY_MS = 2_000;

function refuseUpgrade(socket: Duplex, thrown: unknown): void {
  const body = errorBody(thrown);
  const text = JSON.stringify(body);
  socket.end(
    `HTTP/1.1 ${body.error.status} Refused\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${Buffer.byteLength(text)}\r\nConnection: close\r\n\r\n${text}`,
  );
}
