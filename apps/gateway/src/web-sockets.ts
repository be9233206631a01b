import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { apiFailure, ERRORS, type ErrorKind, isErrorKind } from "@capsem/api";
import { Failure, within } from "@capsem/base";
import type { Admitted } from "./admission.ts";
import { offeredProtocols } from "./credentials.ts";
import { WEBSOCKET_LIMITS } from "./limits.ts";
import { headersToService } from "./passed-headers.ts";
import { lostFailure, type ServiceLink } from "./service-link.ts";
import { openTunnel, type Tunnel } from "./tunnel.ts";
import { SUBPROTOCOLS } from "./websocket-table.ts";

/** All open WebSockets. Rejections before the handshake's answer are the caller's to send. */
export class WebSockets {
  readonly #link: ServiceLink;
  readonly #open = new Set<Tunnel>();
  /** Those whose handshake is under way are among them. */
  readonly #clients = new Set<Duplex>();

  constructor(link: ServiceLink) {
    this.#link = link;
  }

  /** Takes the client's socket once the service agreed and `refusal` has none; until then a rejection leaves it to the caller. */
  async open(
    admitted: Admitted,
    request: IncomingMessage,
    client: Duplex,
    head: Buffer,
    refusal: () => Failure<ErrorKind> | null,
  ): Promise<void> {
    const protocol = checkHandshake(admitted, request);
    if (this.#clients.size >= WEBSOCKET_LIMITS.openMax) {
      throw apiFailure("quota", `Cannot open the stream: ${WEBSOCKET_LIMITS.openMax} are open`);
    }
    this.#clients.add(client);
    try {
      const service = await this.#shake(admitted, request, client, protocol);
      const refused = client.destroyed ? clientLeft() : refusal();
      if (refused !== null) {
        service.socket.destroy();
        throw refused;
      }
      client.write(acceptance(request, protocol));
      if (service.head.length > 0) service.socket.unshift(service.head);
      if (head.length > 0) client.unshift(head);
      const tunnel = openTunnel(client, service.socket);
      this.#open.add(tunnel);
      await tunnel.closed;
      this.#open.delete(tunnel);
    } finally {
      this.#clients.delete(client);
    }
  }

  closeAll(code: number, reason: string): void {
    for (const tunnel of this.#open) tunnel.close(code, reason);
  }

  /** Without a word, also those that are not open yet. */
  cutAll(): void {
    for (const client of this.#clients) client.destroy();
  }

  async #shake(
    admitted: Admitted,
    request: IncomingMessage,
    client: Duplex,
    protocol: string,
  ): Promise<{ socket: Duplex; head: Buffer }> {
    const outgoing = await this.#link.openFresh({
      method: "GET",
      target: admitted.target,
      headers: {
        ...headersToService(request.headers),
        connection: "Upgrade",
        upgrade: "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": request.headers["sec-websocket-key"] ?? "",
        "sec-websocket-protocol": protocol,
      },
    });
    const leave = () => outgoing.destroy();
    client.once("close", leave);
    const answer = new Promise<{ socket: Duplex; head: Buffer }>((resolve, reject) => {
      outgoing.once("upgrade", (_answer, socket, head) => resolve({ socket, head }));
      outgoing.once("response", (refusal) => void failureOf(refusal).then(reject));
      outgoing.on("error", (thrown) => reject(lostFailure(thrown, false)));
      outgoing.end();
    });
    try {
      return await within(answer, WEBSOCKET_LIMITS.handshakeTimeoutMs, () =>
        apiFailure("unresponsive", "Cannot open the stream: the service does not answer"),
      );
    } catch (thrown) {
      outgoing.destroy();
      throw thrown;
    } finally {
      client.off("close", leave);
    }
  }
}

/** Nobody is there to read it. */
function clientLeft(): Failure<ErrorKind> {
  return apiFailure("cancelled", "Cannot open the stream: its client has left");
}

/** The route's own subprotocol, which must be among the offered ones. */
function checkHandshake({ name }: Admitted, request: IncomingMessage): string {
  const { headers } = request;
  const unfit = (state: string) => apiFailure("invalid_input", `Cannot open the stream: ${state}`);
  if (headers.upgrade?.toLowerCase() !== "websocket") throw unfit("it upgrades to no WebSocket");
  if (headers["sec-websocket-version"] !== "13") throw unfit("its WebSocket version is not 13");
  if (!KEY.test(headers["sec-websocket-key"] ?? "")) throw unfit("it has no WebSocket key");
  const protocol = SUBPROTOCOLS[name];
  if (protocol === undefined || !offeredProtocols(request).includes(protocol)) {
    throw unfit(`subprotocol ${protocol} is not offered`);
  }
  return protocol;
}

const KEY = /^[A-Za-z0-9+/]{22}==$/;

/** Ours, not the service's: the subprotocol that carries the token is never selected, nor is an extension. */
function acceptance(request: IncomingMessage, protocol: string): string {
  const key = request.headers["sec-websocket-key"] ?? "";
  const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  return (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
    `Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: ${protocol}\r\n\r\n`
  );
}

/** The service's refusal of an upgrade, as a failure again. */
async function failureOf(refusal: IncomingMessage): Promise<Failure<ErrorKind>> {
  let text = "";
  refusal.setEncoding("utf8");
  try {
    for await (const part of refusal) {
      text += String(part);
      if (text.length > REFUSAL_CHARACTERS_MAX) break;
    }
    const { error } = JSON.parse(text) as { error?: { kind?: string; reason?: string } };
    if (typeof error?.kind === "string" && isErrorKind(error.kind) && typeof error.reason === "string") {
      return new Failure(error.kind, error.reason, { retryable: ERRORS[error.kind].retryable });
    }
  } catch (thrown) {
    return apiFailure("internal", "Cannot open the stream: the service's refusal is unreadable", {
      cause: thrown,
    });
  }
  return apiFailure("internal", "Cannot open the stream: the service's refusal is unreadable");
}

const REFUSAL_CHARACTERS_MAX = 65_536;
