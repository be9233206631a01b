import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { apiFailure, type ErrorKind, isErrorKind, toApiFailure } from "@capsem/api";
import { assert, Failure } from "@capsem/base";
import { type Admission, admit, type Gate, pageOrigin } from "./admission.ts";
import { AuthFailures } from "./auth-failures.ts";
import { Connections, crowded } from "./connections.ts";
import { answerHeaders } from "./cors.ts";
import { forward } from "./forward.ts";
import type { GatewayLog } from "./gateway-log.ts";
import { AUTH_LIMITS, CONNECTION_LIMITS, HTTP_LIMITS, PROCESS_LIMITS } from "./limits.ts";
import type { Listener, Powers } from "./powers.ts";
import { refuseSocket, sendError } from "./send-error.ts";
import { ServiceLink } from "./service-link.ts";
import { TokenStore } from "./token-store.ts";
import { WebSockets } from "./web-sockets.ts";

export interface Gateway {
  readonly port: number;
  /** Looks at the token file now; a replaced one ends what the old token opened. */
  reloadToken(): Promise<void>;
  /** Takes no more; what is under way gets its time, then is cut. */
  close(): Promise<void>;
}

/** The authenticated HTTP front of the service. Resolves when it listens and is ready; rejects with a Failure. */
export async function startGateway(powers: Powers, log: GatewayLog): Promise<Gateway> {
  // Whatever comes in finds a sealed process.
  await powers.confine();
  const link = new ServiceLink(powers, log);
  const sockets = new WebSockets(link);
  const http = httpServer();
  const connections = new Connections(http, () => powers.monotonicMs());
  const token = new TokenStore(powers, log, (generation) => {
    sockets.closeAll(CLOSE_CODES.tokenReplaced, "token replaced");
    connections.endOlderThan(generation);
  });
  await token.open();
  const port = await listen(http, powers.listener);
  const gate = {
    port,
    token,
    failures: new AuthFailures(log),
    monotonicMs: () => powers.monotonicMs(),
  };
  const front = new Front({ gate, link, sockets, connections, log });
  front.attach(http);
  const poll = setInterval(() => {
    if (connections.memberCount > 0) void token.refresh();
  }, AUTH_LIMITS.tokenPollMs);
  try {
    await powers.ready(port);
  } catch (thrown) {
    clearInterval(poll);
    http.close();
    token.close();
    throw thrown;
  }
  front.isServing = true;
  log("info", "started", { port });
  return {
    port,
    reloadToken: () => token.refresh(true),
    async close() {
      clearInterval(poll);
      await front.close(http);
      link.close();
      token.close();
      log("info", "stopped");
      await powers.release();
    },
  };
}

/** Of WebSockets. */
export const CLOSE_CODES = { goingAway: 1001, tokenReplaced: 4401 } as const;

interface FrontParts {
  readonly gate: Gate;
  readonly link: ServiceLink;
  readonly sockets: WebSockets;
  readonly connections: Connections;
  readonly log: GatewayLog;
}

/** What happens to each request, from the parser's hands to the last byte. */
class Front {
  isServing = false;
  readonly #gate: Gate;
  readonly #link: ServiceLink;
  readonly #sockets: WebSockets;
  readonly #connections: Connections;
  readonly #log: GatewayLog;
  /** The answer under way on a connection: there is never a second one. */
  readonly #answers = new WeakMap<Duplex, ServerResponse>();

  constructor({ gate, link, sockets, connections, log }: FrontParts) {
    this.#gate = gate;
    this.#link = link;
    this.#sockets = sockets;
    this.#connections = connections;
    this.#log = log;
  }

  attach(http: Server): void {
    const answer = (request: IncomingMessage, response: ServerResponse) => {
      void this.#answer(request, response);
    };
    http.on("request", answer);
    // Continues only once the request was admitted; an unknown expectation is refused there too.
    http.on("checkContinue", answer);
    http.on("checkExpectation", answer);
    http.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      void this.#upgrade(request, socket, head);
    });
    http.on("connect", (_request: IncomingMessage, socket: Duplex) => {
      refuseSocket(socket, apiFailure("route_not_found", "Cannot serve CONNECT: no such route"), BARE);
    });
    http.on("clientError", (error: Error, socket: Duplex) => this.#refuseUnparsed(error, socket));
  }

  async close(http: Server): Promise<void> {
    this.isServing = false;
    const closed = new Promise<void>((resolve) => {
      http.close(() => resolve());
    });
    this.#sockets.closeAll(CLOSE_CODES.goingAway, "gateway stops");
    http.closeIdleConnections();
    const timer = setTimeout(() => {
      http.closeAllConnections();
      this.#sockets.cutAll();
    }, PROCESS_LIMITS.closeTimeoutMs);
    await closed;
    clearTimeout(timer);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { socket } = request;
    const headers = answerHeaders(pageOrigin(request));
    if (this.#answers.has(socket)) {
      const reason = "Cannot serve the request: it came before the answer of the one before it";
      response.setHeader("connection", "close");
      sendError(request, response, apiFailure("invalid_input", reason), headers);
      return;
    }
    // It was sent away while the request was on its way, and was told that nothing was done.
    if (!this.#connections.ask(socket)) return;
    this.#answers.set(socket, response);
    response.once("close", () => {
      this.#answers.delete(socket);
      this.#connections.enter(socket, "idle");
      // While we stop, a connection that was kept has nothing to wait for.
      if (!this.isServing) setImmediate(() => socket.end());
    });
    // The connection is not kept while we stop.
    if (!this.isServing) response.shouldKeepAlive = false;
    try {
      const admission = await admit(this.#gate, request, false);
      this.#seat(admission, socket);
      // A stranger keeps no place: each answer is its last.
      if (!this.#connections.isMember(socket)) response.shouldKeepAlive = false;
      if (admission.kind === "refused") {
        sendError(request, response, admission.failure, { ...headers, ...admission.headers });
      } else if (admission.kind === "preflight") {
        response.writeHead(204, admission.headers).end();
      } else {
        if (request.headers.expect !== undefined) response.writeContinue();
        await forward(this.#link, admission, request, response, headers);
      }
    } catch (thrown) {
      sendError(request, response, this.#failureOf(thrown), headers);
    }
  }

  async #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    socket.on("error", () => socket.destroy());
    // The answer of a request before it would be mixed with ours.
    if (this.#answers.has(socket) || !this.#connections.ask(socket)) {
      socket.destroy();
      return;
    }
    const headers = answerHeaders(pageOrigin(request));
    try {
      const admission: Admission = await admit(this.#gate, request, true);
      assert(admission.kind !== "preflight", "an upgrade is no preflight");
      this.#seat(admission, socket);
      if (admission.kind === "refused") {
        refuseSocket(socket, admission.failure, { ...headers, ...admission.headers });
        return;
      }
      const { token } = this.#gate;
      const refusal = () => {
        if (!this.isServing) return apiFailure("unavailable", "Cannot open the stream: the gateway stops");
        const isCurrent = token.generation === admission.generation;
        return isCurrent
          ? null
          : apiFailure("unauthorized", "Cannot open the stream: the token was replaced");
      };
      this.#connections.enter(socket, "tunnel");
      await this.#sockets.open(admission, request, socket, head, refusal);
    } catch (thrown) {
      refuseSocket(socket, this.#failureOf(thrown), headers);
    }
  }

  /** Who showed the token has a place from here on, as long as there is one. */
  #seat({ generation }: Admission, socket: Duplex): void {
    if (generation !== null) {
      if (generation !== this.#gate.token.generation)
        throw apiFailure("unauthorized", "Cannot serve the request: the token was replaced");
      if (!this.#connections.welcome(socket, generation)) throw crowded();
    }
    this.#connections.enter(socket, "answering");
  }

  /** What the parser refused: no route and no token has been looked at. */
  #refuseUnparsed(error: Error, socket: Duplex): void {
    const answer = this.#answers.get(socket);
    const code = "code" in error ? error.code : "";
    if (code === "ECONNRESET" || !socket.writable || answer?.headersSent === true) {
      socket.destroy();
      return;
    }
    if (answer !== undefined) this.#answers.delete(socket);
    refuseSocket(socket, unparsedFailure(code), BARE);
  }

  #failureOf(thrown: unknown): Failure<ErrorKind> {
    // A failure that says by itself whether it may be retried keeps its word.
    const failure = thrown instanceof Failure && isErrorKind(thrown.kind) ? thrown : toApiFailure(thrown);
    if (failure.kind === "internal") this.#log("error", "request failed", { detail: failure.detail });
    return failure;
  }
}

const BARE = answerHeaders(null);

function unparsedFailure(code: unknown): Failure<ErrorKind> {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return apiFailure(
        "too_large",
        `Cannot read the request: its headers exceed ${HTTP_LIMITS.headerBytesMax} bytes`,
      );
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return apiFailure("timeout", "Cannot read the request: it did not come in time");
    default:
      return apiFailure("invalid_input", "Cannot read the request: it is not proper HTTP/1.1");
  }
}

function httpServer(): Server {
  const http = createServer({
    maxHeaderSize: HTTP_LIMITS.headerBytesMax,
    headersTimeout: HTTP_LIMITS.headersTimeoutMs,
    // Uploads and long execs have no time limit of their own here.
    requestTimeout: 0,
    keepAliveTimeout: HTTP_LIMITS.keepAliveTimeoutMs,
    connectionsCheckingInterval: HTTP_LIMITS.connectionsCheckMs,
    // Checked by us, with our own error.
    requireHostHeader: false,
    insecureHTTPParser: false,
  });
  http.maxConnections = CONNECTION_LIMITS.openMax;
  // Node would leave out the rest without a word; the bytes are bounded, and we count.
  http.maxHeadersCount = 0;
  return http;
}

function listen(http: Server, listener: Listener): Promise<number> {
  return new Promise((resolve, reject) => {
    http.once("error", reject);
    http.listen(
      listener.kind === "descriptor" ? { fd: listener.fd } : { host: listener.host, port: listener.port },
      () => {
        http.off("error", reject);
        resolve((http.address() as AddressInfo).port);
      },
    );
  });
}
