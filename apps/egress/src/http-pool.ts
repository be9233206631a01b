import type { LookupFunction, Socket } from "node:net";
import type { SecureContext } from "node:tls";
import type { Failure } from "@capsem/base";
import type { HttpFailureKind, UrlParts } from "@capsem/net";
import buildConnector, { type Connector } from "undici/lib/core/connect.js";
import Client from "undici/lib/dispatcher/client.js";
import { Exchange, type ExchangeEnd } from "./exchange.ts";
import { EGRESS_LIMITS } from "./limits.ts";
import { SecretFilter } from "./secret-filter.ts";
import { SecretMatcher } from "./secret-matcher.ts";

export interface HttpPoolOptions {
  readonly target: UrlParts;
  /** Where it dials, and nowhere else, whatever the target's name means. */
  readonly addresses: readonly string[];
  /** Who is trusted. */
  readonly secureContext: SecureContext;
  /** In every form: blanked in whatever comes back. */
  readonly secrets: readonly string[];
}

export interface PooledRequest {
  readonly path: string;
  readonly method: string;
  /** Names and values in turn; the host is the pool's own. */
  readonly headers: string[];
  readonly body: Uint8Array | null;
  /** Its connection is closed behind it. */
  readonly isLast: boolean;
  /** Told at once, while the dispatcher is still at it. */
  readonly onEnd: (end: ExchangeEnd) => void;
}

/**
 * Connections to one origin, of one lease. Nobody else's request ever uses one of them. The library's own pool dials
 * once more for each request that was aborted, and often twice for two in a row; one client of it is one connection.
 */
export class HttpPool {
  readonly #host: string;
  readonly #origin: string;
  /** Null: there is nothing to blank. */
  readonly #matcher: SecretMatcher | null;
  readonly #connect: Connector;
  /** The last one that was used is the first one to be used again. */
  readonly #idle: Client[] = [];
  readonly #busy = new Map<Exchange, Client>();
  #isClosed = false;
  #onEmpty: (() => void) | null = null;

  private constructor(
    { host, origin }: Pick<UrlParts, "host" | "origin">,
    secrets: readonly string[],
    connect: Connector,
  ) {
    this.#host = host;
    this.#origin = origin;
    this.#matcher = SecretMatcher.of(secrets);
    this.#connect = connect;
  }

  static open({ target, addresses, secureContext, secrets }: HttpPoolOptions): HttpPool {
    const options = {
      lookup: pinned(addresses),
      timeout: EGRESS_LIMITS.connectTimeoutMs,
      autoSelectFamily: addresses.length > 1,
      maxCachedSessions: EGRESS_LIMITS.tlsSessionsMax,
      secureContext,
    };
    return new HttpPool(target, secrets, buildConnector(options));
  }

  /** Over a socket that is connected already. */
  static over(socket: Socket): HttpPool {
    const target = { host: "warm.invalid", origin: "http://warm.invalid" };
    return new HttpPool(target, [], (_options, done) => process.nextTick(done, null, socket));
  }

  request({ path, method, headers, body, isLast, onEnd }: PooledRequest): Exchange {
    const client = this.#idle.pop() ?? this.#newClient();
    const filter = this.#matcher === null ? null : new SecretFilter(this.#matcher);
    const exchange = new Exchange(this.#host, filter, (end) => {
      this.#release(exchange, client, end.failure === null && !isLast);
      onEnd(end);
    });
    this.#busy.set(exchange, client);
    client.dispatch({ path, method, headers, body, reset: isLast, idempotent: false }, exchange);
    return exchange;
  }

  /** When what is under way has ended, its connections close. */
  close(): Promise<void> {
    this.#isClosed = true;
    for (const client of this.#idle.splice(0)) end(client);
    if (this.#busy.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onEmpty = resolve;
    });
  }

  /** What is under way fails with this. */
  destroy(cause: Failure<HttpFailureKind>): Promise<void> {
    for (const exchange of [...this.#busy.keys()]) exchange.fail(cause);
    return this.close();
  }

  #newClient(): Client {
    const client = new Client(this.#origin, {
      connect: this.#connect,
      pipelining: 1,
      allowH2: false,
      // Whoever asks has a deadline; a stream of events has none.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: EGRESS_LIMITS.keepAliveMs,
      keepAliveMaxTimeout: EGRESS_LIMITS.keepAliveMsMax,
      maxHeaderSize: EGRESS_LIMITS.answerHeaderBytesMax,
    });
    client.on("disconnect", () => {
      const at = this.#idle.indexOf(client);
      if (at < 0) return;
      this.#idle.splice(at, 1);
      end(client);
    });
    return client;
  }

  #release(exchange: Exchange, client: Client, isOfUse: boolean): void {
    this.#busy.delete(exchange);
    if (isOfUse && !this.#isClosed) this.#idle.push(client);
    else end(client);
    if (this.#busy.size > 0) return;
    this.#onEmpty?.();
    this.#onEmpty = null;
  }
}

/** Not within the library's own callback, which goes on with the connection. */
function end(client: Client): void {
  queueMicrotask(() => void client.destroy());
}

/** Answers what was admitted; no name is ever asked for. */
function pinned(addresses: readonly string[]): LookupFunction {
  const all = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  return (_hostname, { all: wantsAll }, done) => {
    const [first] = all;
    // Never within the call: sockets expect to be asked for later.
    if (first === undefined) process.nextTick(done, new Error("no address was admitted"), "");
    else if (wantsAll === true) process.nextTick(done, null, [...all]);
    else process.nextTick(done, null, first.address, first.family);
  };
}
