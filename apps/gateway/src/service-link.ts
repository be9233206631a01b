import { Agent, type ClientRequest, request as httpRequest } from "node:http";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { apiFailure, type ErrorKind } from "@capsem/api";
import { Failure, within } from "@capsem/base";
import type { GatewayLog } from "./gateway-log.ts";
import { SERVICE_LIMITS } from "./limits.ts";
import type { Powers } from "./powers.ts";

export interface ServiceRequest {
  readonly method: string;
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Connections to the service: a few are kept, for reads alone. Says once when the service goes away and comes back. */
export class ServiceLink {
  readonly #powers: Powers;
  readonly #log: GatewayLog;
  readonly #agent: Agent;
  #isAway = false;

  constructor(powers: Powers, log: GatewayLog) {
    this.#powers = powers;
    this.#log = log;
    this.#agent = new KeptConnections(() => this.#connect());
  }

  /** A request that may go over a kept connection. */
  readKept(request: ServiceRequest): ClientRequest {
    return httpRequest({ ...optionsOf(request), agent: this.#agent });
  }

  /** A request on a connection of its own. Rejects with `service_away` before anything was sent. */
  async openFresh(request: ServiceRequest): Promise<ClientRequest> {
    const socket = await this.#connect();
    return httpRequest({ ...optionsOf(request), createConnection: () => socket });
  }

  close(): void {
    this.#agent.destroy();
  }

  async #connect(): Promise<Socket> {
    try {
      const connecting = this.#powers.connectService();
      const socket = await within(connecting, SERVICE_LIMITS.connectTimeoutMs).catch((thrown: unknown) => {
        connecting.then(
          (late) => late.destroy(),
          () => undefined,
        );
        throw thrown;
      });
      if (this.#isAway) this.#log("info", "service back");
      this.#isAway = false;
      return socket;
    } catch (thrown) {
      if (!this.#isAway) this.#log("warning", "service away");
      this.#isAway = true;
      throw apiFailure("service_away", "Cannot reach the service: it does not run", { cause: thrown });
    }
  }
}

class KeptConnections extends Agent {
  readonly #connect: () => Promise<Socket>;

  constructor(connect: () => Promise<Socket>) {
    super({ keepAlive: true, maxFreeSockets: SERVICE_LIMITS.keptConnectionsMax });
    this.#connect = connect;
  }

  override createConnection(
    _options: object,
    done?: (error: Error | null, socket: Duplex) => void,
  ): Duplex | null | undefined {
    this.#connect().then(
      (socket) => done?.(null, socket),
      // Node reads no socket beside an error, though its types ask for one.
      (thrown: Error) => done?.(thrown, new Duplex()),
    );
    return undefined;
  }
}

function optionsOf({ method, target, headers }: ServiceRequest) {
  return { method, path: target, host: "localhost", headers };
}

/**
 * What the client is told when a connection to the service broke before an answer. A mutation may have been done:
 * the same request must not follow by itself.
 */
export function lostFailure(thrown: unknown, mutates: boolean): Failure<ErrorKind> {
  if (thrown instanceof Failure && thrown.kind === "service_away") return thrown;
  if (!mutates) {
    return apiFailure("service_away", "Cannot finish the request: the service went away", { cause: thrown });
  }
  const reason = "Cannot finish the request: the service went away, and whether it was done is unknown";
  return new Failure("service_away", reason, { cause: thrown, retryable: false });
}
