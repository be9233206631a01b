import { Failure } from "@capsem/base";
import type { HttpClient, HttpHeader, HttpResponse } from "@capsem/net";
import { ACCEPT_ENCODING, type BodyReader, readBody } from "./content-coding.ts";
import { FETCH_LIMITS } from "./limits.ts";
import { headerOf } from "./media.ts";
import { tooLarge } from "./zstd-frames.ts";

export interface WebParts {
  readonly http: Pick<HttpClient, "fetch">;
  readonly reader: BodyReader;
}

export interface WebRequest {
  readonly url: string;
  readonly method: "GET" | "HEAD";
  /** What is wished for; the server decides. */
  readonly accept: string;
  /** Otherwise the answer has none. */
  readonly readsBody: boolean;
  readonly timeoutMs: number;
  readonly traceId: string | null;
  readonly signal: AbortSignal;
}

export interface WebAnswer {
  /** Where it came from in the end. */
  readonly url: string;
  readonly status: number;
  readonly headers: readonly HttpHeader[];
  readonly redirects: readonly Redirect[];
  readonly bytes: Uint8Array;
  /** Of the last body, as it came. */
  readonly bytesReceived: number;
}

export interface Redirect {
  readonly status: number;
  readonly from: string;
  readonly to: string;
}

const REDIRECTS: readonly number[] = [301, 302, 303, 307, 308];

/**
 * One page of the web. Each redirect is a request of its own, by way of egress: admitted, resolved and judged again, and
 * nothing of the one before goes with it. No request has a cookie, a credential or a referrer. Throws a Failure: those of
 * the client, "too_large", "redirected" for redirects that come to nothing.
 */
export async function webFetch(parts: WebParts, request: WebRequest): Promise<WebAnswer> {
  const timeout = AbortSignal.timeout(request.timeoutMs);
  const signal = AbortSignal.any([request.signal, timeout]);
  try {
    return await follow(parts, { ...request, signal });
  } catch (thrown) {
    if (timeout.aborted && !request.signal.aborted) {
      throw new Failure("timeout", `Cannot fetch: not done within ${request.timeoutMs} ms`, {
        cause: thrown,
      });
    }
    throw thrown;
  }
}

async function follow(parts: WebParts, request: WebRequest): Promise<WebAnswer> {
  const redirects: Redirect[] = [];
  for (let url = webUrl(request.url); ; ) {
    const response = await parts.http.fetch({
      server: null,
      url: url.href,
      method: request.method,
      headers: [
        ["accept", request.accept],
        ["accept-encoding", ACCEPT_ENCODING],
        ["user-agent", "capsem-fetch"],
      ],
      body: null,
      timeoutMs: request.timeoutMs,
      traceId: request.traceId,
      signal: request.signal,
    });
    const { status, headers } = response;
    const target = REDIRECTS.includes(status) ? headerOf(headers, "location") : null;
    if (target === null) {
      const read = await readAnswer(parts, request, response);
      return { url: url.href, status, headers, redirects, ...read };
    }
    response.body.cancel();
    const to = redirectUrl(target, url);
    redirects.push({ status, from: url.href, to: to.href });
    checkRedirects(redirects);
    url = to;
  }
}

async function readAnswer(
  { reader }: WebParts,
  { method, readsBody, signal }: WebRequest,
  { headers, body }: HttpResponse,
) {
  if (method === "HEAD" || !readsBody) {
    body.cancel();
    return { bytes: new Uint8Array(), bytesReceived: 0 };
  }
  try {
    if (Number(headerOf(headers, "content-length") ?? 0) > FETCH_LIMITS.bodyBytesMax) throw tooLarge();
    return await readBody(body, headerOf(headers, "content-encoding"), reader, signal);
  } finally {
    body.cancel();
  }
}

function checkRedirects(redirects: readonly Redirect[]): void {
  const last = redirects.at(-1);
  if (redirects.some(({ from }) => from === last?.to)) {
    throw new Failure("redirected", `Cannot fetch: ${last?.to} redirects back to itself`);
  }
  if (redirects.length > FETCH_LIMITS.redirectsMax) {
    throw new Failure(
      "redirected",
      `Cannot fetch: over ${FETCH_LIMITS.redirectsMax} redirects, the last to ${last?.to}`,
    );
  }
}

function redirectUrl(target: string, from: URL): URL {
  try {
    return webUrl(target, from.href);
  } catch (cause) {
    const shown = target.slice(0, 200);
    throw new Failure("redirected", `Cannot fetch: a redirect leads to "${shown}"`, { cause });
  }
}

/** Whether it may be dialled is egress's and the service's to say. Throws "invalid_input". */
function webUrl(text: string, base?: string): URL {
  if (text.length > FETCH_LIMITS.urlCharactersMax || !URL.canParse(text, base))
    throw refusedUrl("it is no URL");
  const url = new URL(text, base);
  if (url.protocol !== "http:" && url.protocol !== "https:")
    throw refusedUrl("only http and https are fetched");
  // A name and a password in a URL would be a credential.
  if (url.username !== "" || url.password !== "") throw refusedUrl("it has a user in it");
  url.hash = "";
  return url;
}

function refusedUrl(why: string): Failure {
  return new Failure("invalid_input", `Cannot fetch the URL: ${why}`);
}
