import { Failure } from "@capsem/base";
import type { HttpBody, HttpClient, HttpHeader, HttpResponse } from "@capsem/net";
import { UPSTREAM_LIMITS } from "../limits.ts";
import type { Message } from "../message.ts";
import type { ByteBudget } from "./byte-budget.ts";
import { asUpstreamFailure, inBackground, quoted, rude } from "./failure.ts";

export interface EndpointOptions {
  readonly server: string;
  readonly url: string;
  readonly http: HttpClient;
  readonly budget: ByteBudget;
}

export interface EndpointRequest {
  readonly method: "POST" | "GET" | "DELETE";
  readonly headers: readonly HttpHeader[];
  readonly message?: Message | undefined;
  readonly signal: AbortSignal;
  /** To the end of the answer's head; null waits. */
  readonly timeoutMs: number | null;
}

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 307, 308]);

/** One address of a server, and how it is asked there. */
export class Endpoint {
  readonly budget: ByteBudget;
  readonly #server: string;
  readonly #http: HttpClient;
  #url: string;

  constructor({ server, url, http, budget }: EndpointOptions) {
    this.#server = server;
    this.#url = url;
    this.#http = http;
    this.budget = budget;
  }

  get url(): string {
    return this.#url;
  }

  /** The same server at another address of its origin. Throws "upstream_failed" for any other. */
  at(address: string): Endpoint {
    const target = URL.canParse(address, this.#url) ? new URL(address, this.#url) : null;
    if (target === null || target.origin !== new URL(this.#url).origin) {
      throw rude(`names an endpoint of another origin (${quoted(address)})`);
    }
    return new Endpoint({ server: this.#server, url: target.href, http: this.#http, budget: this.budget });
  }

  /** The body is the caller's to read or cancel. A redirect within the origin is followed, and remembered. */
  async send(request: EndpointRequest): Promise<HttpResponse> {
    const { message } = request;
    const body = message === undefined ? null : typeof message === "string" ? Buffer.from(message) : message;
    for (let redirects = 0; ; redirects += 1) {
      const response = await this.#fetch(request, body);
      const location = REDIRECTS.has(response.status) ? headerOf(response, "location") : undefined;
      if (location === undefined) return response;
      response.body.cancel();
      if (redirects === UPSTREAM_LIMITS.redirectsMax) throw rude("redirects without end");
      // What is redirected was not done: it may be sent again.
      this.#url = this.#redirected(location);
    }
  }

  async #fetch({ method, headers, signal, timeoutMs }: EndpointRequest, body: Uint8Array | null) {
    try {
      const server = this.#server;
      return await this.#http.fetch({ server, url: this.#url, method, headers, body, timeoutMs, signal });
    } catch (thrown) {
      throw asUpstreamFailure(thrown);
    }
  }

  #redirected(location: string): string {
    const target = URL.canParse(location, this.#url) ? new URL(location, this.#url) : null;
    if (target === null || target.origin !== new URL(this.#url).origin) {
      throw rude(`redirects to another origin (${quoted(location)}): declare that address`);
    }
    return target.href;
  }
}

export function headerOf({ headers }: Pick<HttpResponse, "headers">, name: string): string | undefined {
  return headers.find(([key]) => key === name)?.[1];
}

/** Lower case, without parameters. */
export function mediaTypeOf(response: Pick<HttpResponse, "headers">): string {
  const value = headerOf(response, "content-type") ?? "";
  const end = value.indexOf(";");
  return (end < 0 ? value : value.slice(0, end)).trim().toLowerCase();
}

/** All of a body. Throws "upstream_failed" beyond the bound, before more of it is read. */
export async function readAll(body: HttpBody, bytesMax: number, budget: ByteBudget): Promise<Uint8Array> {
  const held = budget.open();
  const parts: Uint8Array[] = [];
  let bytes = 0;
  try {
    for (let chunk = await read(body); chunk !== null; chunk = await read(body)) {
      bytes += chunk.length;
      if (bytes > bytesMax) throw rude(`answers with more than ${bytesMax} bytes`);
      held.set(bytes);
      parts.push(chunk);
    }
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts, bytes);
  } finally {
    held.close();
    body.cancel();
  }
}

/** The next bytes; failures are ours. */
export async function read(body: HttpBody): Promise<Uint8Array | null> {
  try {
    return await body.read();
  } catch (thrown) {
    throw asUpstreamFailure(thrown);
  }
}

/** For what nobody looks at: its connection is used again when it ends soon. Never rejects. */
export function discard(body: HttpBody): void {
  inBackground(linger(body));
}

async function linger(body: HttpBody): Promise<void> {
  const timer = setTimeout(() => body.cancel(), UPSTREAM_LIMITS.lingerMs);
  try {
    let bytes = 0;
    for (let chunk = await body.read(); chunk !== null; chunk = await body.read()) {
      bytes += chunk.length;
      if (bytes > UPSTREAM_LIMITS.lingerBytesMax) return;
    }
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
  } finally {
    clearTimeout(timer);
    body.cancel();
  }
}
