import { authorized } from "./authorized.ts";
import { type ClientNameOptions, named } from "./client-name.ts";
import { fetchTransport } from "./fetch-transport.ts";
import { type GatewayUrlOptions, parseGatewayUrl } from "./gateway-url.ts";
import { checkGiven } from "./given.ts";
import { createTokens, type Token } from "./token.ts";
import type { Transport } from "./transport.ts";
import type { WebSocketClass } from "./web-socket.ts";

export interface GatewayOptions extends GatewayUrlOptions, ClientNameOptions {
  /** http or https, as `http://127.0.0.1:19222`. */
  readonly url: string;
  readonly token: Token;
  /** Instead of the runtime's own. */
  readonly fetch?: typeof fetch;
  readonly webSocket?: WebSocketClass;
  /** Whether a request's body may be a stream. Browsers refuse it over HTTP/1.1; other runtimes do not. */
  readonly streamsUploads?: boolean;
}

/** The gateway over `fetch` and WebSocket: browsers, Deno, Bun and Node. Nothing is opened before the first call. */
export function gatewayTransport(options: GatewayOptions): Transport {
  checkGiven(options, ["token"]);
  const address = parseGatewayUrl(options.url, options);
  const inner = fetchTransport(address, {
    fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
    webSocket: options.webSocket ?? (globalThis.WebSocket as WebSocketClass | undefined),
    streamsUploads: options.streamsUploads ?? !isBrowser(),
  });
  return authorized(named(inner, options), createTokens(options.token));
}

function isBrowser(): boolean {
  return "XMLHttpRequest" in globalThis || "ServiceWorkerGlobalScope" in globalThis;
}
